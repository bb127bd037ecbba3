"""Development certificates: a private authority, and a server and a client certificate that it signs.

Requires the package cryptography (extra `tls`).
"""

import ipaddress
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Self, final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from predictor.errors import ConfigurationError

LOCAL: Final = ("localhost", "127.0.0.1", "::1")
"""Hosts of every server certificate."""
VALID: Final = timedelta(days=365)
_EARLIER: Final = timedelta(hours=1)
"""Tolerance for clock differences."""
_PRIVATE: Final = 0o600
_PUBLIC: Final = 0o644


@final
class IssuedCertificates:
    """The PEM files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca, self.ca_key = folder / "ca.pem", folder / "ca.key"
        """The authority, for clients, and for servers that require client certificates; its key signs any identity."""
        self.server, self.server_key = folder / "server.pem", folder / "server.key"
        self.client, self.client_key = folder / "client.pem", folder / "client.key"
        self.all = (self.ca, self.ca_key, self.server, self.server_key, self.client, self.client_key)


@final
@dataclass(frozen=True, slots=True)
class CertificateKey:
    """A certificate and its key."""

    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def authority(cls, begin: datetime) -> Self:
        """Create a self-signed authority."""
        key, name = _create_key(), _create_name("Quantra development authority")
        usage = x509.BasicConstraints(ca=True, path_length=0)
        builder = _start_certificate(name, name, key, begin).add_extension(usage, critical=True)
        builder = builder.add_extension(
            x509.KeyUsage(
                digital_signature=False,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        key_identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        return cls(_sign(builder.add_extension(key_identifier, critical=False), key), key)

    def issue(
        self, name: str, purpose: x509.ObjectIdentifier, hosts: Sequence[str], begin: datetime
    ) -> "CertificateKey":
        """Create a certificate signed by this one."""
        key = _create_key()
        usage = x509.BasicConstraints(ca=False, path_length=None)
        builder = _start_certificate(_create_name(name), self.cert.subject, key, begin).add_extension(
            usage, critical=True
        )
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        authority_identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(authority_identifier, critical=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_parse_host, hosts))), critical=False)
        return CertificateKey(_sign(builder, self.key), key)

    def write(self, cert: Path, key: Path) -> None:
        """Write both; only this user can read the key."""
        body = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        _write(key, body, _PRIVATE)
        _write(cert, self.cert.public_bytes(Encoding.PEM), _PUBLIC)


def issue(folder: Path, hosts: Iterable[str] = (), begin: datetime | None = None) -> IssuedCertificates:
    """Create an authority, a server certificate and a client certificate, valid for a year.

    Args:
        folder: Target folder; if missing, it is created, and git ignores its files.
        hosts: Names and addresses of the server, in addition to localhost.
        begin: Start of validity; None: now.

    Raises:
        ConfigurationError: One of the files exists, or a host name is invalid.
        OSError: The files cannot be written.
    """
    files = IssuedCertificates(folder)
    if there := [path.name for path in files.all if path.exists()]:
        raise ConfigurationError(f"{folder} already has {', '.join(there)}; choose another folder, or remove them")
    valid_from = datetime.now(UTC) - _EARLIER if begin is None else begin
    authority = CertificateKey.authority(valid_from)
    server = authority.issue("Quantra server", ExtendedKeyUsageOID.SERVER_AUTH, (*LOCAL, *hosts), valid_from)
    client = authority.issue("Quantra client", ExtendedKeyUsageOID.CLIENT_AUTH, (), valid_from)
    if not folder.is_dir():
        folder.mkdir(0o700, parents=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    authority.write(files.ca, files.ca_key)
    server.write(files.server, files.server_key)
    client.write(files.client, files.client_key)
    return files


def _create_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _create_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _parse_host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    if not text or not text.isascii() or any(c in text for c in " :/,"):
        raise ConfigurationError(f"--host {text[:80]!r} is not a host name; use one such as server.example.com")
    return x509.DNSName(text)


def _start_certificate(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begin: datetime
) -> x509.CertificateBuilder:
    empty = x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(key.public_key())
    numbered = empty.serial_number(x509.random_serial_number())
    return numbered.not_valid_before(begin).not_valid_after(begin + VALID)


def _sign(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    return builder.sign(key, hashes.SHA256())


def _write(path: Path, body: bytes, mode: int) -> None:
    """Create a file with these permissions from the start."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(body)
