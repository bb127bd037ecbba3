"""What a server shows of itself over TLS, and whose certificates it asks callers for: read, checked, handed to gRPC."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, final

import grpc

from predictor.errors import ConfigurationError
from predictor.pem import check_authorities, check_pair, read_bytes


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
        check_pair(files.cert, files.key)
        if files.client_ca is not None:
            check_authorities("--tls-client-ca", files.client_ca)
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
