"""Access tokens and their roles, independent of the transport."""

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self, final

from predictor.errors import ConfigurationError

SHORTEST: Final = 32
"""Fewest characters; a shorter token might be guessed."""
LONGEST: Final = 1024
MOST: Final = 256
"""Most tokens in one file; each call is compared with all of them."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TOKEN: Final = re.compile(r"[!-~]+")


class Role(StrEnum):
    """Permission of a token."""

    PREDICT = "predict"
    EXPLAIN = "explain"
    READER = "reader"
    ADMIN = "admin"


@final
@dataclass(frozen=True, slots=True)
class Token:
    """The token of one caller.

    Attributes:
        name: Name of the caller, for messages.
        roles: Permissions.
        digest: SHA-256 of the token; the token itself is not stored.
    """

    name: str
    roles: frozenset[Role]
    digest: bytes = field(repr=False)

    @classmethod
    def of(cls, name: str, roles: Iterable[Role], token: str) -> Self:
        """Check and hash a token.

        Raises:
            ConfigurationError: It is too short, too long, or has characters that are invalid in a header.
        """
        if not SHORTEST <= len(token) <= LONGEST:
            raise ConfigurationError(
                f"the token has {len(token)} characters, but must have {SHORTEST} to {LONGEST}; make one with "
                "openssl rand -hex 32"
            )
        if not _TOKEN.fullmatch(token):
            raise ConfigurationError(
                "the token has a character that is not visible ASCII; make one with openssl rand -hex 32"
            )
        return cls(name, frozenset(roles), _digest(token))


@final
@dataclass(frozen=True, slots=True)
class Tokens:
    """The valid tokens of a server."""

    all: tuple[Token, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a token file: each line is `NAME ROLE[,ROLE] TOKEN`, blank, or a `#` comment.

        Raises:
            ConfigurationError: A line is invalid, two lines have the same token, or the file has no token. The message
                names the line without its content.
        """
        tokens: dict[bytes, Token] = {}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            try:
                token = _token_of(words)
            except ConfigurationError as error:
                raise ConfigurationError(f"line {number}: {error.message}") from None
            if token.digest in tokens:
                raise ConfigurationError(f"line {number}: duplicates the token of an earlier line; make another one")
            tokens[token.digest] = token
        if not 0 < len(tokens) <= MOST:
            raise ConfigurationError(f"{len(tokens)} tokens found, need 1 to {MOST} lines of NAME ROLE[,ROLE] TOKEN")
        return cls(tuple(tokens.values()))

    def find(self, token: str) -> Token | None:
        """Return the matching token; None if it is unknown.

        Compares with every token in constant time, even after a match, so that the duration reveals nothing.
        """
        digest, match = _digest(token), None
        for known in self.all:
            if hmac.compare_digest(known.digest, digest):
                match = known
        return match

    def with_token(self, token: Token) -> "Tokens":
        """Add a token, unless it is present."""
        return self if any(known.digest == token.digest for known in self.all) else Tokens((*self.all, token))


NONE: Final = Tokens(())


def _token_of(words: list[str]) -> Token:
    if len(words) != 3:  # noqa: PLR2004 - as the message says
        raise ConfigurationError(f"{len(words)} words, but a line is NAME ROLE[,ROLE] TOKEN")
    name, roles, token = words
    if not _NAME.fullmatch(name):
        raise ConfigurationError("invalid name; use at most 64 letters, digits, '.', '_' and '-'")
    known = {role.value: role for role in Role}
    if unknown := [role for role in roles.split(",") if role not in known]:
        raise ConfigurationError(f"{len(unknown)} unknown roles; use {', '.join(known)}")
    return Token.of(name, (known[role] for role in roles.split(",")), token)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
