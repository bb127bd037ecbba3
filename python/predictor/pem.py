"""Reads and checks certificates and keys in PEM files."""

import ssl
from pathlib import Path
from typing import Final

from predictor.errors import ConfigurationError

_MAX_BYTES: Final = 1 << 20
_NO_PASSWORD: Final = ""
"""Keeps OpenSSL from prompting for one on the terminal."""


def read_bytes(flag: str, path: Path) -> bytes:
    """Read a small file.

    Args:
        flag: the flag that names the file, for messages.
        path: the file.

    Raises:
        ConfigurationError: the file is unreadable or larger than 1 MiB; the message has the flag and the file's name.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{flag} {path.name}: {error.strerror}; pass a readable file") from None
    if len(content) > _MAX_BYTES:
        raise ConfigurationError(f"{flag} {path.name} has over {_MAX_BYTES} bytes; pass another file")
    return content


def load_pair(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Use this certificate and its key.

    Raises:
        ConfigurationError: the key does not belong to the certificate, or one of the files is unreadable or not in PEM.
    """
    files = f"--tls-cert {cert.name} and --tls-key {key.name}"
    try:
        context.load_cert_chain(cert, key, _NO_PASSWORD)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigurationError(
                f"{files}: the key does not belong to the certificate; pass a matching pair"
            ) from None
        raise ConfigurationError(
            f"{files} must be a certificate and a key without a password, in PEM; quantra certs DIR creates a pair"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{files}: {error.strerror}; pass readable files") from None


def load_authorities(context: ssl.SSLContext, flag: str, path: Path) -> None:
    """Trust the certificates of a file.

    Raises:
        ConfigurationError: the file is unreadable or has none.
    """
    try:
        context.load_verify_locations(path)
    except ssl.SSLError:
        raise ConfigurationError(f"{flag} {path.name} has no certificate in PEM; pass another file") from None
    except OSError as error:
        raise ConfigurationError(f"{flag} {path.name}: {error.strerror}; pass a readable file") from None
