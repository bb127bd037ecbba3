"""Access to the page: a token in the address that `quantra ui` prints, then in a cookie."""

import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from predictor.call_context import CallContext
from predictor.catalog import ModelInfo
from predictor.forecast import Explanation, Forecast, require_forecast
from predictor.instance import ExplanationQuery, Instance

if TYPE_CHECKING:
    from predictor.server import ServerSettings
    from predictor.service import PredictionService

ROOT: Final = "/page"
MAX_WAIT_S: Final = 60.0
"""Seconds that a forecast or its reasons may take on the page."""
_COOKIE: Final = "quantra-page"
_QUERY: Final = "token"


class PageModels(Protocol):
    """The models of the page: those of this process, or of another server."""

    def models(self) -> Sequence[ModelInfo]:
        """List every version of every model."""
        ...

    def model(self, reference: str) -> ModelInfo:
        """Describe one version."""
        ...

    def predict(self, reference: str, instance: Instance) -> Forecast:
        """Forecast one instance."""
        ...

    def explain(self, reference: str, query: ExplanationQuery) -> Explanation:
        """Explain one forecast."""
        ...


@final
@dataclass(frozen=True, slots=True)
class ServiceModels:
    """The models of this process."""

    service: "PredictionService"

    def models(self) -> Sequence[ModelInfo]:
        """List every version of every model."""
        return self.service.models()

    def model(self, reference: str) -> ModelInfo:
        """Describe one version."""
        return self.service.model(reference)

    def predict(self, reference: str, instance: Instance) -> Forecast:
        """Forecast one instance."""
        (outcome,) = self.service.predict_inline(reference, [instance], CallContext.with_timeout(MAX_WAIT_S))
        return require_forecast(outcome)

    def explain(self, reference: str, query: ExplanationQuery) -> Explanation:
        """Explain one forecast."""
        return self.service.explain(reference, query, CallContext.with_timeout(MAX_WAIT_S)).result(MAX_WAIT_S)


@final
@dataclass(frozen=True, slots=True)
class PageContext:
    """What the page shows and changes."""

    settings: "ServerSettings"
    models: PageModels
    refresh: Callable[[], object] | None
    """Serves what is new in the folder of models; None if the models are those of another server."""


@final
@dataclass(frozen=True, slots=True)
class LoadedPage:
    """The routes of the page, and what ends its work."""

    routes: Sequence[BaseRoute]
    close: Callable[[], None]


LoadPage = Callable[[PageContext], LoadedPage]
"""Creates the page; called once the models are loaded."""


@final
@dataclass(frozen=True, slots=True)
class PageToken:
    """The random token of one start."""

    value: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    def address(self, scheme: str, host: str) -> str:
        """Return the address to open."""
        return f"{scheme}://{host}{ROOT}/?{_QUERY}={self.value}"

    def is_in(self, text: str | None) -> bool:
        """Whether a text is the token."""
        return text is not None and hmac.compare_digest(text.encode(), self.value.encode())


@final
class PageAccess:
    """Admits requests with the token; changes only from the page itself.

    Args:
        app: The routes of the page.
        token: The token.
    """

    def __init__(self, app: ASGIApp, token: PageToken) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        response = self._check(request)
        await (self._app if response is None else response)(scope, receive, send)

    def _check(self, request: Request) -> Response | None:
        """Return the response of a request without access, or that of the first visit."""
        if self._token.is_in(request.query_params.get(_QUERY)) and request.method == "GET":
            response = RedirectResponse(request.url.path, 303)
            is_secure = request.url.scheme == "https"
            response.set_cookie(
                _COOKIE, self._token.value, path=ROOT, httponly=True, samesite="strict", secure=is_secure
            )
            return response
        if not self._token.is_in(request.cookies.get(_COOKIE)):
            return _refuse("open the address that `quantra ui` printed; its token changes at each start")
        origin = f"{request.url.scheme}://{request.headers.get('host', '')}"
        if request.method != "GET" and request.headers.get("origin") != origin:
            return _refuse("this request does not come from the page; use the page's own buttons")
        return None


def _refuse(reason: str) -> Response:
    return PlainTextResponse(reason + "\n", 403, headers={"connection": "close"})
