"""The certificates and tokens of a server, and their reload when a file changes."""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar, final

from predictor.errors import ConfigurationError, InternalError
from predictor.pem import load_authorities, load_pair, read_bytes
from predictor.server.tokens import NONE, Role, Token, TokenGuard, Tokens

if TYPE_CHECKING:
    from predictor.server.settings import ServerSettings

LOOK_S: Final = 1.0
"""Seconds between two checks of the files."""
OWN_ROLES: Final[Mapping[str, tuple[Role, ...]]] = {
    "QUANTRA_TOKEN": (Role.PREDICT, Role.EXPLAIN, Role.READER),
    "QUANTRA_ADMIN_TOKEN": (Role.ADMIN,),
}
"""Roles of the tokens in environment variables of the server."""
HTTP2: Final = "h2"
"""The name of HTTP/2 in ALPN."""
_READABLE: Final = 0o044
"""Permission bits of group and others."""

ValueT = TypeVar("ValueT")

_log = logging.getLogger(__name__)


@final
@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of the PEM files."""

    cert: Path
    """Server certificate and its intermediate certificates."""
    key: Path
    """Private key, without a password."""
    client_ca: Path | None = None
    """Authorities that must have signed client certificates; None: clients need no certificate."""

    @classmethod
    def of(cls, cert: Path | None, key: Path | None, client_ca: Path | None) -> Self | None:
        """Create it from the flags; None if all are unset.

        Raises:
            ConfigurationError: the certificate or its key is missing.
        """
        if cert is None and key is None and client_ca is None:
            return None
        if cert is None or key is None:
            raise ConfigurationError("TLS needs both --tls-cert and --tls-key; create them with quantra certs DIR")
        return cls(cert, key, client_ca)


@final
@dataclass(frozen=True, slots=True)
class Certificates:
    """Contents of the PEM files of one server."""

    cert: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None
    context: ssl.SSLContext = field(repr=False, compare=False)
    """For the connections of the server."""

    @classmethod
    def read(cls, files: TlsFiles, previous: Self | None = None, *, protocol: str = HTTP2) -> Self:
        """Read and check the files.

        Args:
            files: paths of the files.
            protocol: the protocol that the server speaks, as ALPN calls it.
            previous: contents that were checked before; unchanged files are not checked again.

        Raises:
            ConfigurationError: a file cannot be read or has the wrong type, or the key does not match the certificate.
        """
        contents = _read(files)
        if previous is not None and contents == (previous.cert, previous.key, previous.client_ca):
            return previous
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_pair(context, files.cert, files.key)
        if files.client_ca is not None:
            load_authorities(context, "--tls-client-ca", files.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
        context.num_tickets = 0  # each connection presents its certificate again
        context.set_alpn_protocols([protocol])
        if _read(files) != contents:  # ensure that the checked contents are the ones in use
            raise ConfigurationError("--tls-cert, --tls-key or --tls-client-ca changed while they were read")
        return cls(*contents, context)


def make_current_context(certificates: Callable[[], Certificates]) -> ssl.SSLContext:
    """Return a context for a listening socket; each handshake uses the certificates of its time."""

    def use_current(tls: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        tls.context = certificates().context

    context = certificates().context
    context.sni_callback = use_current  # called in each handshake, even without a server name
    return context


def _read(files: TlsFiles) -> tuple[bytes, bytes, bytes | None]:
    authorities = None if files.client_ca is None else read_bytes("--tls-client-ca", files.client_ca)
    return read_bytes("--tls-cert", files.cert), read_bytes("--tls-key", files.key), authorities


@final
class WatchedFile(Generic[ValueT]):
    """The last valid content of files.

    Args:
        name: Name of the files, for the log.
        read: Reads them, given the current value; raises ConfigurationError if they are invalid.

    Raises:
        ConfigurationError: The files are invalid at the first read.
    """

    def __init__(self, name: str, read: Callable[[ValueT | None], ValueT]) -> None:
        self._name = name
        self._read = read
        self._problem = ""
        self.value = read(None)
        """The last valid value."""

    def reload(self) -> bool:
        """Read the files again; whether the value changed. Each problem is logged once."""
        try:
            value = self._read(self.value)
        except ConfigurationError as error:
            if error.message != self._problem:
                _log.warning("invalid %s, the previous ones stay active: %s", self._name, error.message)
            self._problem = error.message
            return False
        self._problem = ""
        if value == self.value:
            return False
        self.value = value
        _log.info("%s changed; the new ones are active", self._name)
        return True


@final
class CredentialRotation:
    """The certificates and tokens of one server.

    Args:
        settings: Settings of the server.
        protocol: The protocol that it speaks over TLS, as ALPN calls it.

    Raises:
        ConfigurationError: A file is invalid.
    """

    def __init__(self, settings: "ServerSettings", *, protocol: str = HTTP2) -> None:
        tls, token_file = settings.tls, settings.token_file
        environment_tokens = {"QUANTRA_TOKEN": settings.token, "QUANTRA_ADMIN_TOKEN": settings.admin_token}
        self._tls: WatchedFile[Certificates] | None = None
        if tls is not None:
            self._tls = WatchedFile("certificates", partial(Certificates.read, tls, protocol=protocol))
        self._tokens: WatchedFile[Tokens] | None = None
        if token_file is not None or any(environment_tokens.values()):
            self._tokens = WatchedFile("tokens", lambda _: read_tokens(token_file, environment_tokens))
        self._private = tuple(path for path in (token_file, None if tls is None else tls.key) if path is not None)
        self.guard = TokenGuard(None if self._tokens is None else self._tokens.value)

    @property
    def certificates(self) -> Callable[[], Certificates] | None:
        """Returns the current certificates; None without TLS."""
        watched = self._tls
        return None if watched is None else lambda: watched.value

    async def follow(self) -> None:
        """Reload the files when they change; runs until cancelled."""
        self._warn_of_readable_files()
        while self._tls is not None or self._tokens is not None:
            await asyncio.sleep(LOOK_S)
            try:
                await asyncio.to_thread(self.reload)
            except Exception as error:  # noqa: BLE001 - task boundary: later revocations must still take effect
                _log.warning("%s", InternalError.of("reloading certificates and tokens", error, _log).message)

    def reload(self) -> None:
        """Reload the files."""
        certificates_changed = self._tls is not None and self._tls.reload()
        tokens_changed = self._tokens is not None and self._tokens.reload()
        if self._tokens is not None and tokens_changed:
            self.guard.change(self._tokens.value)
        if certificates_changed or tokens_changed:
            self._warn_of_readable_files()

    def _warn_of_readable_files(self) -> None:
        for path in self._private:
            if _is_readable_by_others(path):
                _log.warning("other users can read %s; restrict it with chmod 600", path.name)


def read_tokens(file: Path | None, environment_tokens: Mapping[str, str]) -> Tokens:
    """Read the tokens of a file and add those of environment variables.

    Args:
        file: Token file; None: none.
        environment_tokens: The additional token of each name in OWN_ROLES; empty: none.

    Raises:
        ConfigurationError: The file or a token is invalid.
    """
    tokens = NONE
    if file is not None:
        body = read_bytes("--token-file", file)
        try:
            tokens = Tokens.parse(body.decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise ConfigurationError(f"--token-file {file.name} is not UTF-8; save it as UTF-8") from None
        except ConfigurationError as error:
            raise ConfigurationError(f"--token-file {file.name}: {error.message}") from None
    for name, token in environment_tokens.items():
        try:
            tokens = tokens.with_token(Token.of(name, OWN_ROLES[name], token)) if token else tokens
        except ConfigurationError as error:
            raise ConfigurationError(f"{name}: {error.message}") from None
    return tokens


def _is_readable_by_others(path: Path) -> bool:
    """Whether group or others may read; always False on Windows."""
    try:
        return os.name == "posix" and bool(path.stat().st_mode & _READABLE)
    except OSError:
        return False  # missing for a moment; the next reload reports it
