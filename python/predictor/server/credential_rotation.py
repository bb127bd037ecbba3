"""Certificates and tokens that may change while a server runs: which are in force, and why others are not."""

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from predictor.errors import ConfigurationError, InternalError
from predictor.pem import read_bytes
from predictor.server import certificates
from predictor.server.certificates import Certificates
from predictor.server.settings import ServerSettings
from predictor.server.token_guard import TokenGuard
from predictor.server.tokens import NONE, Role, Token, Tokens

if TYPE_CHECKING:
    import grpc

LOOK_S: Final = 1.0
"""Seconds between two looks at the files."""
_READABLE: Final = 0o044
"""By the group, or by all."""

ValueT = TypeVar("ValueT")

_log = logging.getLogger(__name__)


@final
class WatchedFile(Generic[ValueT]):
    """What files say, as long as they say something that can be used: else what they said before.

    Args:
        name: of the files, for the log.
        read: reads them, and is given what they said before; raises ConfigurationError where they cannot be used.

    Raises:
        ConfigurationError: they cannot be used at first.
    """

    def __init__(self, name: str, read: Callable[[ValueT | None], ValueT]) -> None:
        self._name = name
        self._read = read
        self._problem = ""
        self.value = read(None)
        """In force."""

    def look(self) -> bool:
        """Read them again; whether something new is in force. What is wrong with them is told once."""
        try:
            found = self._read(self.value)
        except ConfigurationError as error:
            if error.message != self._problem:
                _log.warning("%s cannot be used, the earlier ones stay in force: %s", self._name, error.message)
            self._problem = error.message
            return False
        self._problem = ""
        if found == self.value:
            return False
        self.value = found
        _log.info("%s have changed; the new ones are in force", self._name)
        return True


@final
class CredentialRotation:
    """The certificates and tokens of one server.

    Args:
        settings: name the files.

    Raises:
        ConfigurationError: a file cannot be used.
    """

    def __init__(self, settings: ServerSettings) -> None:
        files, file, own = settings.tls, settings.token_file, settings.token
        self._tls = None if files is None else WatchedFile("certificates", partial(Certificates.read, files))
        self._tokens: WatchedFile[Tokens] | None = None
        if file is not None or own:
            self._tokens = WatchedFile("tokens", lambda _: read_tokens(file, own))
        self._private = tuple(path for path in (file, None if files is None else files.key) if path is not None)
        self.guard = TokenGuard(None if self._tokens is None else self._tokens.value)

    def credentials(self) -> "grpc.ServerCredentials | None":
        """What a port takes, each one of its own; None: without TLS."""
        followed = self._tls
        return None if followed is None else certificates.credentials(lambda: followed.value)

    async def follow(self) -> None:
        """Put into force what comes into the files; runs until it is cancelled."""
        self._warn()
        while self._tls is not None or self._tokens is not None:
            await asyncio.sleep(LOOK_S)
            try:
                await asyncio.to_thread(self.look)
            except Exception as error:  # noqa: BLE001 - a task's edge: a token that is taken away later must not stay good
                _log.warning("%s", InternalError.of("looking at certificates and tokens", error, _log).message)

    def look(self) -> None:
        """Read the files again."""
        has_certificates = self._tls is not None and self._tls.look()
        has_tokens = self._tokens is not None and self._tokens.look()
        if self._tokens is not None and has_tokens:
            self.guard.change(self._tokens.value)
        if has_certificates or has_tokens:
            self._warn()

    def _warn(self) -> None:
        for path in self._private:
            if _is_readable_by_others(path):
                _log.warning("others may read %s; allow it to this user alone: chmod 600", path.name)


def read_tokens(file: Path | None, own: str) -> Tokens:
    """Those of the file, and one more that may predict and explain.

    Args:
        file: None: no others.
        own: the one more; empty: none.

    Raises:
        ConfigurationError: the file cannot be used, or the token is none.
    """
    found = NONE
    if file is not None:
        body = read_bytes("--token-file", file)
        try:
            found = Tokens.parse(body.decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise ConfigurationError(f"--token-file {file.name} is no UTF-8; write it anew") from None
        except ConfigurationError as error:
            raise ConfigurationError(f"--token-file {file.name}: {error.message}") from None
    if not own:
        return found
    try:
        return found.with_one(Token.of("QUANTRA_TOKEN", (Role.PREDICT, Role.EXPLAIN), own))
    except ConfigurationError as error:
        raise ConfigurationError(f"QUANTRA_TOKEN: {error.message}") from None


def _is_readable_by_others(path: Path) -> bool:
    """Where systems tell: Windows has no such bits."""
    try:
        return os.name == "posix" and bool(path.stat().st_mode & _READABLE)
    except OSError:
        return False  # it is away for a moment; `look` tells
