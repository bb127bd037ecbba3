"""Access tokens and their roles, independent of the transport."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self, final

from predictor.errors import ConfigurationError, PermissionDeniedError, UnauthenticatedError

MIN_CHARACTERS: Final = 32
"""Fewest characters; a shorter token might be guessed."""
MAX_CHARACTERS: Final = 1024
MAX_TOKENS: Final = 256
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
        if not MIN_CHARACTERS <= len(token) <= MAX_CHARACTERS:
            raise ConfigurationError(
                f"the token has {len(token)} characters, but must have {MIN_CHARACTERS} to {MAX_CHARACTERS}; make one "
                "with openssl rand -hex 32"
            )
        if not _TOKEN.fullmatch(token):
            raise ConfigurationError(
                "the token has a character that is not visible ASCII; make one with openssl rand -hex 32"
            )
        return cls(name, frozenset(roles), _hash_token(token))


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
                token = _parse_token(words)
            except ConfigurationError as error:
                raise ConfigurationError(f"line {number}: {error.message}") from None
            if token.digest in tokens:
                raise ConfigurationError(f"line {number}: duplicates the token of an earlier line; make another one")
            tokens[token.digest] = token
        if not 0 < len(tokens) <= MAX_TOKENS:
            raise ConfigurationError(
                f"{len(tokens)} tokens found, need 1 to {MAX_TOKENS} lines of NAME ROLE[,ROLE] TOKEN"
            )
        return cls(tuple(tokens.values()))

    def find(self, token: str) -> Token | None:
        """Return the matching token; None if it is unknown.

        Compares with every token in constant time, even after a match, so that the duration reveals nothing.
        """
        digest, match = _hash_token(token), None
        for candidate in self.all:
            if hmac.compare_digest(candidate.digest, digest):
                match = candidate
        return match

    def with_token(self, token: Token) -> "Tokens":
        """Add a token, unless it is present."""
        return self if any(other.digest == token.digest for other in self.all) else Tokens((*self.all, token))


NONE: Final = Tokens(())


def _parse_token(words: list[str]) -> Token:
    if len(words) != 3:  # noqa: PLR2004 - as the message says
        raise ConfigurationError(f"{len(words)} words, but a line is NAME ROLE[,ROLE] TOKEN")
    name, roles, token = words
    if not _NAME.fullmatch(name):
        raise ConfigurationError("invalid name; use at most 64 letters, digits, '.', '_' and '-'")
    roles_by_name = {role.value: role for role in Role}
    if unknown := [role for role in roles.split(",") if role not in roles_by_name]:
        raise ConfigurationError(f"{len(unknown)} unknown roles; use {', '.join(roles_by_name)}")
    return Token.of(name, (roles_by_name[role] for role in roles.split(",")), token)


def _hash_token(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


_ANY_TOKEN: Final = frozenset(Role)
_HEADER: Final = "authorization"
_SCHEME: Final = "bearer"

NEEDS: Final[Mapping[str, frozenset[Role]]] = {
    "Predict": frozenset({Role.PREDICT}),
    "PredictStream": frozenset({Role.PREDICT}),
    "SimulatePaths": frozenset({Role.PREDICT}),
    "Explain": frozenset({Role.EXPLAIN}),
    "ExplainGlobal": frozenset({Role.EXPLAIN}),
    "ListModels": _ANY_TOKEN,
    "GetModel": _ANY_TOKEN,
    "GetForecast": frozenset({Role.READER}),
    "ListForecasts": frozenset({Role.READER}),
    "GetHealth": frozenset({Role.READER}),
    "WatchEvents": frozenset({Role.READER}),
    "CompareVersions": frozenset({Role.ADMIN}),
    "PromoteVersion": frozenset({Role.ADMIN}),
    "RollBackChampion": frozenset({Role.ADMIN}),
    "LoadModel": frozenset({Role.ADMIN}),
    "UnloadModel": frozenset({Role.ADMIN}),
    "ReloadModel": frozenset({Role.ADMIN}),
    "ServerLive": frozenset(),
    "ServerReady": frozenset(),
    "ServerMetadata": _ANY_TOKEN,
    "ModelReady": _ANY_TOKEN,
    "ModelMetadata": _ANY_TOKEN,
    "ModelConfig": _ANY_TOKEN,
    "RepositoryIndex": _ANY_TOKEN,
    "ModelInfer": frozenset({Role.PREDICT}),
    "ModelStreamInfer": frozenset({Role.PREDICT}),
}
"""Roles that permit each call; one is enough, and an empty set needs no token. Calls not listed need `admin`."""
_NOT_LISTED: Final = frozenset({Role.ADMIN})


@final
class TokenGuard:
    """Checks the tokens of calls. Thread-safe.

    Args:
        tokens: The valid tokens; None: no token needed.
    """

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens

    def change(self, tokens: Tokens) -> None:
        """Replace the valid tokens."""
        self._tokens = tokens

    def check(self, name: str, headers: Iterable[tuple[str, str | bytes]]) -> str:
        """Check the token of a call.

        Args:
            name: Name of the call.
            headers: Headers of the call, with lower-case names.

        Returns:
            The name of the token; empty if the call needs none.

        Raises:
            UnauthenticatedError: The token is missing or unknown.
            PermissionDeniedError: The token lacks the role.
        """
        tokens, need = self._tokens, NEEDS.get(name, _NOT_LISTED)
        if tokens is None or not need:
            return ""
        token = tokens.find(_find_token(headers))
        if token is None:
            raise UnauthenticatedError("unknown token; ask the server's operator for a valid one")
        if not token.roles & need:
            role = min(need)
            raise PermissionDeniedError(
                f"the token of {token.name} has the roles {', '.join(sorted(token.roles))}; "
                f"{name} needs the role {role}",
                metadata={"role": role.value},
            )
        return token.name


def _find_token(headers: Iterable[tuple[str, str | bytes]]) -> str:
    """Return the token of a call."""
    values = [value for key, value in headers if key == _HEADER]
    scheme, _, token = str(values[0]).partition(" ") if len(values) == 1 else ("", "", "")
    if scheme.lower() != _SCHEME or not token.strip():
        raise UnauthenticatedError(
            "this server requires a token; send one header 'authorization: Bearer TOKEN'. The Python client reads "
            "QUANTRA_TOKEN from the environment"
        )
    return token.strip()
