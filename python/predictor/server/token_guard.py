"""Who may call what, decided from a call's name and headers before anything of its body is read."""

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
    "Explain": frozenset({Role.EXPLAIN}),
    "ExplainGlobal": frozenset({Role.EXPLAIN}),
    "ListModels": _ANY_TOKEN,
    "GetModel": _ANY_TOKEN,
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
"""By the name of a call, the roles of which one is enough; none: it needs no token, as health does not. What is not
listed needs `admin`."""
_NOT_LISTED: Final = frozenset({Role.ADMIN})


@final
class TokenGuard:
    """Lets calls in by their tokens. Thread-safe.

    Args:
        tokens: those that are known; None: nobody is asked for one.
    """

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens

    def change(self, tokens: Tokens) -> None:
        """Know these from now on, and no others."""
        self._tokens = tokens

    def check(self, name: str, headers: Iterable[tuple[str, str | bytes]]) -> None:
        """Let a call in.

        Args:
            name: of the call.
            headers: of the call, their names in lower case.

        Raises:
            UnauthenticatedError: it has no token, or one that is not known.
            PermissionDeniedError: its token is not good for it.
        """
        tokens, need = self._tokens, NEEDS.get(name, _NOT_LISTED)
        if tokens is None or not need:
            return
        token = tokens.find(_sent(headers))
        if token is None:
            raise UnauthenticatedError("the server does not know this token; ask whoever runs it for another one")
        if not token.roles & need:
            role = min(need)
            raise PermissionDeniedError(
                f"the token of {token.name} is good for {', '.join(sorted(token.roles))}; {name} needs one with the "
                f"role {role}",
                metadata={"role": role.value},
            )


def _sent(headers: Iterable[tuple[str, str | bytes]]) -> str:
    """The one token of a call."""
    values = [value for key, value in headers if key == _HEADER]
    scheme, _, token = str(values[0]).partition(" ") if len(values) == 1 else ("", "", "")
    if scheme.lower() != _SCHEME or not token.strip():
        raise UnauthenticatedError(
            "this server wants a token; send 'authorization: Bearer TOKEN' once. The Python client takes QUANTRA_TOKEN "
            "from the environment"
        )
    return token.strip()
