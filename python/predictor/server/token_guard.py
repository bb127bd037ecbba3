"""Authorization of calls by token, before their body is read."""

from collections.abc import Iterable, Mapping
from typing import Final, final

from predictor.errors import PermissionDeniedError, UnauthenticatedError
from predictor.server.tokens import Role, Tokens

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
        token = tokens.find(_sent(headers))
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


def _sent(headers: Iterable[tuple[str, str | bytes]]) -> str:
    """Return the token of a call."""
    values = [value for key, value in headers if key == _HEADER]
    scheme, _, token = str(values[0]).partition(" ") if len(values) == 1 else ("", "", "")
    if scheme.lower() != _SCHEME or not token.strip():
        raise UnauthenticatedError(
            "this server requires a token; send one header 'authorization: Bearer TOKEN'. The Python client reads "
            "QUANTRA_TOKEN from the environment"
        )
    return token.strip()
