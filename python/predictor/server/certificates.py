"""What a server shows of itself over TLS, and whose certificates it asks callers for: read, checked, handed to gRPC."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, final

import grpc

from predictor.errors import ConfigurationError

_LARGEST: Final = 1 << 20
_NO_PASSWORD: Final = ""
"""Else OpenSSL would ask for one on the terminal."""


@final
@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files."""

    cert: Path
    """The server's certificate, and those between it and its authority."""
    key: Path
    """Its private key, without a password."""
    client_ca: Path | None = None
    """Authorities of which callers must show a certificate; None: they need none."""

    @classmethod
    def of(cls, cert: Path | None, key: Path | None, client_ca: Path | None) -> Self | None:
        """What the flags name; None if they name nothing.

        Raises:
            ConfigurationError: a certificate without its key, or the reverse, or authorities without both.
        """
        if cert is None and key is None and client_ca is None:
            return None
        if cert is None or key is None:
            raise ConfigurationError("TLS needs --tls-cert and --tls-key, both of them; quantra certs DIR makes a pair")
        return cls(cert, key, client_ca)


@final
@dataclass(frozen=True, slots=True)
class Certificates:
    """The contents of those files, which belong together."""

    cert: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None

    @classmethod
    def read(cls, files: TlsFiles) -> Self:
        """Read and check them.

        Raises:
            ConfigurationError: a file cannot be read, is no PEM file of its kind, or the key is another certificate's.
        """
        found = cls._read(files)
        _check_pair(files)
        if files.client_ca is not None:
            _check_authorities(files.client_ca)
        if cls._read(files) != found:  # else what was checked would not be what is used
            raise ConfigurationError("--tls-cert, --tls-key or --tls-client-ca changed while they were read")
        return found

    @classmethod
    def _read(cls, files: TlsFiles) -> Self:
        authorities = None if files.client_ca is None else read_bytes("--tls-client-ca", files.client_ca)
        return cls(read_bytes("--tls-cert", files.cert), read_bytes("--tls-key", files.key), authorities)

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """For gRPC."""
        return grpc.ssl_server_certificate_configuration([(self.key, self.cert)], self.client_ca)


def credentials(current: Callable[[], Certificates]) -> grpc.ServerCredentials:
    """What a port of gRPC's takes; before each handshake it asks which certificates are in force.

    Args:
        current: called on gRPC's threads. Whether callers must show a certificate does not change.
    """
    used = current()

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal used
        now = current()
        if now is used:
            return None
        used = now
        return now.configuration()

    asks: Any = changed  # None means that nothing has changed; the stubs do not know
    return grpc.dynamic_ssl_server_credentials(used.configuration(), asks, used.client_ca is not None)


def read_bytes(flag: str, path: Path) -> bytes:
    """The contents of a small file.

    Raises:
        ConfigurationError: it cannot be read, or has over 1 MiB; the message has the flag and the file's name.
    """
    try:
        with path.open("rb") as file:
            found = file.read(_LARGEST + 1)
    except OSError as error:
        raise ConfigurationError(f"{flag} {path.name}: {error.strerror}; name a file that can be read") from None
    if len(found) > _LARGEST:
        raise ConfigurationError(f"{flag} {path.name} has over {_LARGEST} bytes; name another file")
    return found


def _check_pair(files: TlsFiles) -> None:
    told = f"--tls-cert {files.cert.name} and --tls-key {files.key.name}"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.cert, files.key, _NO_PASSWORD)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigurationError(f"{told}: the key is of another certificate; name both of one pair") from None
        raise ConfigurationError(
            f"{told} are no certificate and key in PEM, the key without a password; quantra certs DIR makes a pair"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{told}: {error.strerror}; name files that can be read") from None


def _check_authorities(path: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
    except ssl.SSLError:
        raise ConfigurationError(f"--tls-client-ca {path.name} has no certificate in PEM; name another file") from None
    except OSError as error:
        raise ConfigurationError(f"--tls-client-ca {path.name}: {error.strerror}; name another file") from None
