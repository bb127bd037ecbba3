"""Tokens: who may call what. No transport is named here; every door that asks for tokens shares this."""

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self, final

from predictor.errors import ConfigurationError

SHORTEST: Final = 32
"""Characters. A token of fewer might be guessed."""
LONGEST: Final = 1024
MOST: Final = 256
"""Tokens of one file: each call is compared with all of them."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TOKEN: Final = re.compile(r"[!-~]+")


class Role(StrEnum):
    """What a token is good for."""

    PREDICT = "predict"
    EXPLAIN = "explain"
    ADMIN = "admin"


@final
@dataclass(frozen=True, slots=True)
class Token:
    """One caller's.

    Attributes:
        name: of who has it, for messages.
        roles: what it is good for.
        digest: its SHA-256; the token itself is not kept.
    """

    name: str
    roles: frozenset[Role]
    digest: bytes = field(repr=False)

    @classmethod
    def of(cls, name: str, roles: Iterable[Role], token: str) -> Self:
        """Take a token in.

        Raises:
            ConfigurationError: it is too short or too long, or has characters that no header can have.
        """
        if not SHORTEST <= len(token) <= LONGEST:
            raise ConfigurationError(
                f"the token has {len(token)} characters, but must have {SHORTEST} to {LONGEST}; make one with "
                "openssl rand -hex 32"
            )
        if not _TOKEN.fullmatch(token):
            raise ConfigurationError("the token has a character that is not a visible one of ASCII; make another one")
        return cls(name, frozenset(roles), _digest(token))


@final
@dataclass(frozen=True, slots=True)
class Tokens:
    """Those that a server knows."""

    all: tuple[Token, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a file of tokens: `NAME ROLE[,ROLE] TOKEN` on each line, or nothing, or `#` and a comment.

        Raises:
            ConfigurationError: a line is something else, two have the same token, or none has one. The message names
                the line and nothing of what it holds.
        """
        found: dict[bytes, Token] = {}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            try:
                token = _token_of(words)
            except ConfigurationError as error:
                raise ConfigurationError(f"line {number}: {error.message}") from None
            if token.digest in found:
                raise ConfigurationError(f"line {number}: an earlier line has the same token; make another one")
            found[token.digest] = token
        if not 0 < len(found) <= MOST:
            raise ConfigurationError(f"it holds {len(found)} tokens, but must hold 1 to {MOST}: NAME ROLE[,ROLE] TOKEN")
        return cls(tuple(found.values()))

    def find(self, token: str) -> Token | None:
        """The one that was sent; None if it is not known.

        It is compared with every token, over all of its bytes, whether or not one was found already: how long that
        takes tells nothing about any of them.
        """
        sent, found = _digest(token), None
        for one in self.all:
            if hmac.compare_digest(one.digest, sent):
                found = one
        return found

    def with_one(self, token: Token) -> "Tokens":
        """These and one more; nothing changes where it is among them already."""
        return self if any(one.digest == token.digest for one in self.all) else Tokens((*self.all, token))


NONE: Final = Tokens(())


def _token_of(words: list[str]) -> Token:
    if len(words) != 3:  # noqa: PLR2004 - as the message says
        raise ConfigurationError(f"{len(words)} words, but a line is NAME ROLE[,ROLE] TOKEN")
    name, roles, token = words
    if not _NAME.fullmatch(name):
        raise ConfigurationError("a name has letters, digits, '.', '_' and '-', at most 64 of them")
    known = {role.value: role for role in Role}
    if unknown := [role for role in roles.split(",") if role not in known]:
        raise ConfigurationError(f"{len(unknown)} of its roles are unknown; there are {', '.join(known)}")
    return Token.of(name, (known[role] for role in roles.split(",")), token)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
