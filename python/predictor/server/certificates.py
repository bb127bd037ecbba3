"""TLS certificates of a server."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, final

from predictor.errors import ConfigurationError
from predictor.pem import load_authorities, load_pair, read_bytes


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
    """For the connections of a server that speaks HTTP/2."""

    @classmethod
    def read(cls, files: TlsFiles, known: Self | None = None) -> Self:
        """Read and check the files.

        Args:
            files: paths of the files.
            known: contents that were checked before; unchanged files are not checked again.

        Raises:
            ConfigurationError: a file cannot be read or has the wrong type, or the key does not match the certificate.
        """
        contents = _read(files)
        if known is not None and contents == (known.cert, known.key, known.client_ca):
            return known
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_pair(context, files.cert, files.key)
        if files.client_ca is not None:
            load_authorities(context, "--tls-client-ca", files.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
        context.num_tickets = 0  # each connection presents its certificate again
        context.set_alpn_protocols(["h2"])
        if _read(files) != contents:  # ensure that the checked contents are the ones in use
            raise ConfigurationError("--tls-cert, --tls-key or --tls-client-ca changed while they were read")
        return cls(*contents, context)


def _read(files: TlsFiles) -> tuple[bytes, bytes, bytes | None]:
    authorities = None if files.client_ca is None else read_bytes("--tls-client-ca", files.client_ca)
    return read_bytes("--tls-cert", files.cert), read_bytes("--tls-key", files.key), authorities
