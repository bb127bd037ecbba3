"""Where a database is: a URI that may hold a password, and so is never shown."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self, final
from urllib.parse import parse_qsl, unquote

from predictor.errors import BarsError, ConfigurationError

SCHEMES: Final = ("postgresql", "sqlite", "mssql")
MASK: Final = "***"

_ALIASES: Final = {"postgres": "postgresql"}
_URI: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/(?P<rest>/.*)?", re.DOTALL)
_SERVER: Final = re.compile(
    r"/(?:[^\s:/?#@\[\]]*(?::(?P<password>[^\s:/?#@\[\]]*))?@)?"  # the user and the password
    r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]]*)(?::[0-9]+)?"  # the host and the port
    r"(?:/(?P<database>[^\s/?#@]*))?"
    r"(?:\?(?P<settings>[^\s#@]*))?"
)
_HALF_ENCODED: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SECRET: Final = re.compile(r"passw|pwd|secret|token", re.IGNORECASE)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A database's URI, taken apart.

    Attributes:
        uri: The whole; only a driver may read it.
        scheme: postgresql, sqlite or mssql.
        database: The database's name; of SQLite the file's name without its ending. May be empty.
        passwords: What no message may hold, as it is written and as it is meant.
    """

    uri: str = field(repr=False)
    scheme: str
    database: str
    passwords: frozenset[str] = field(repr=False)

    @classmethod
    def parse(cls, uri: str, origin: str) -> Self:
        """Take a URI apart. What a driver might misread, and repeat in its message in pieces, is refused here.

        Args:
            uri: Such as postgresql://user:password@host:5432/database or sqlite:///folder/file.db.
            origin: Where it comes from, for messages: they never repeat the URI.

        Raises:
            ConfigurationError: For an unknown scheme, or signs that must be percent-encoded.
        """
        found = _URI.fullmatch(uri)
        scheme = found["scheme"].lower() if found else ""
        scheme = _ALIASES.get(scheme, scheme)
        if found is None or found["rest"] is None or scheme not in SCHEMES:
            known = ", ".join(f"{name}://" for name in SCHEMES)
            raise ConfigurationError(f"{origin} must hold a database's URI, beginning with one of {known}")
        uri = f"{scheme}:/{found['rest']}"
        if scheme == "sqlite":
            return cls(uri=uri, scheme=scheme, database=Path(found["rest"]).stem, passwords=frozenset())
        parts = _SERVER.fullmatch(found["rest"])
        if parts is None or _HALF_ENCODED.search(uri) or not uri.isprintable():
            raise ConfigurationError(
                f"the URI of {origin} cannot be read: write {scheme}://user:password@host:port/database, and in user "
                "and password percent-encode all but letters, digits and -._~ (@ is %40, / is %2F, % is %25)"
            )
        passwords = frozenset(_passwords(parts["password"] or "", parts["settings"] or ""))
        return cls(uri=uri, scheme=scheme, database=unquote(parts["database"] or ""), passwords=passwords)

    def scrubbed(self, message: str) -> str:
        """A driver's message on one line, without the URI and its passwords."""
        for secret in sorted({self.uri, *self.passwords}, key=len, reverse=True):
            message = message.replace(secret, MASK)
        return " ".join(message.split())

    @property
    def file(self) -> Path:
        """SQLite's file: the path after `sqlite://` as it stands, or without its first slash.

        Some programs count the third slash to the path and some do not, so both are looked for, in this order.

        Raises:
            BarsError: Neither is there; SQLite itself would make an empty database.
        """
        text = self.uri.partition("://")[2]
        candidates = (Path(text), Path(text.removeprefix("/")))
        for candidate in candidates:
            if candidate.is_file():
                return candidate
        raise BarsError(f"there is no SQLite database {candidates[0]}, nor {candidates[1]} in the current folder")


def is_address(source: str) -> bool:
    """Whether a text is meant as a URI, rightly written or not, and no file's path; `C:/bars.csv` is a path."""
    return _URI.match(source) is not None


def _passwords(password: str, settings: str) -> Iterator[str]:
    written = [part.partition("=") for part in settings.split("&")]
    given = [value for name, _, value in written if _SECRET.search(name)]
    meant = [value for name, value in parse_qsl(settings) if _SECRET.search(name)]
    return (text for text in (password, unquote(password), *given, *meant) if text)
