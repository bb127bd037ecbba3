"""Widgets of OpenBB Workspace: the served models, their forecasts of the ledger's bars, and the fan of one symbol."""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from predictor._pb import prediction_pb2 as pb
from predictor.card import Card
from predictor.dates import to_date
from predictor.errors import BarsError, MalformedRequestError, NoLedgerError, PermissionDeniedError
from predictor.forecast import Forecast, convert_to_simple_return, require_forecast
from predictor.instance import Instance
from predictor.ledger import Ledger
from predictor.web.api import Api
from predictor.web.responses import JSON
from predictor.wire import errors, forecasts, instances

if TYPE_CHECKING:
    from predictor.bars import BarPanel

_MODEL: Final = {
    "paramName": "model",
    "label": "Model",
    "description": "NAME, NAME@VERSION or NAME@ALIAS",
    "type": "endpoint",
    "optionsEndpoint": "workspace/model-names",
}
_SYMBOL: Final = {
    "paramName": "symbol",
    "label": "Symbol",
    "description": "A symbol of the ledger",
    "type": "endpoint",
    "optionsEndpoint": "workspace/symbols",
}
WIDGETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "quantra_models": {
        "name": "Quantra models",
        "description": "The served models, and what their scores are worth.",
        "category": "Quantra",
        "type": "table",
        "endpoint": "workspace/models",
        "gridData": {"w": 20, "h": 8},
    },
    "quantra_forecasts": {
        "name": "Quantra forecasts",
        "description": "The forecast of every symbol after its last bar: quantiles of the return, 0.01 for 1 %.",
        "category": "Quantra",
        "type": "table",
        "endpoint": "workspace/forecasts",
        "params": [_MODEL],
        "gridData": {"w": 20, "h": 14},
    },
    "quantra_fan": {
        "name": "Quantra fan",
        "description": "The last bars of one symbol, and the quantiles of its future prices.",
        "category": "Quantra",
        "type": "chart",
        "endpoint": "workspace/fan",
        "params": [_MODEL, _SYMBOL],
        "gridData": {"w": 20, "h": 14},
    },
}
"""The content of /widgets.json, by the id of each widget."""
_SHOWN_SESSIONS: Final = 120
"""Fewest sessions that are read from the ledger."""
_DAYS_PER_SESSION: Final = 2
"""Calendar days that are read for each session; 365/252 without long closures."""

Answer = Callable[[Request], Awaitable[object]]


@final
class WorkspaceWidgets:
    """The routes of the widgets. Their bars are those of the ledger.

    Args:
        api: Answers the calls.
        ledger: Address of the ledger; empty without one.
        origins: Web sites whose pages may call the server.
    """

    def __init__(self, api: Api, ledger: str, origins: Sequence[str]) -> None:
        self._api, self._ledger, self._origins = api, ledger, origins
        self._read_permit = asyncio.Semaphore(1)  # the bars of a ledger may need much memory

    def routes(self) -> list[Route]:
        """Create the routes."""
        answers: Mapping[str, Answer] = {
            "/widgets.json": self._list_widgets,
            "/workspace/models": self._list_models,
            "/workspace/model-names": self._list_model_names,
            "/workspace/symbols": self._list_symbols,
            "/workspace/forecasts": self._list_forecasts,
            "/workspace/fan": self._fan,
        }
        return [
            Route(path, self._api.with_error_responses(self._respond(answer)), methods=["GET"])
            for path, answer in answers.items()
        ]

    def _respond(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            # Refuse the pages of other web sites before any work; a browser sends the header, other programs do not.
            origin = request.headers.get("origin")
            if request.headers.get("sec-fetch-site") == "cross-site" and origin not in self._origins:
                raise PermissionDeniedError(
                    f"the web site {(origin or 'without an origin')[:80]!r} may not read this server; start it with "
                    "--allow-origin URL"
                )
            return Response(json.dumps(await answer(request), allow_nan=False), media_type=JSON)

        return respond

    async def _list_widgets(self, _: Request) -> object:
        return WIDGETS

    async def _list_models(self, request: Request) -> object:
        return [_describe_model(info) for info in await self._read_models(request)]

    async def _list_model_names(self, request: Request) -> object:
        names = (f"{info.name}@{info.version}" for info in await self._read_models(request))
        return [{"label": name, "value": name} for name in names]

    async def _list_symbols(self, request: Request) -> object:
        bars = await self._read_bars(request, (), _SHOWN_SESSIONS)
        return [{"label": name, "value": name} for name in bars.symbols]

    async def _list_forecasts(self, request: Request) -> object:
        model = _read_parameter(request, "model")
        forecast = await self._forecast(model, await self._bars_for(model, (), request), request)
        return [*_forecast_rows(forecast)]

    async def _fan(self, request: Request) -> object:
        model, symbol = _read_parameter(request, "model"), _read_parameter(request, "symbol")
        bars = await self._bars_for(model, (symbol,), request)
        forecast = await self._forecast(model, bars, request)
        if symbol in forecast.refusals:
            raise forecast.refusals[symbol]
        return await asyncio.to_thread(_draw_fan, bars, forecast, symbol)

    async def _read_models(self, request: Request) -> Sequence[pb.ModelInfo]:
        return (await self._api.call("ListModels", pb.ListModelsRequest(), pb.ListModelsResponse, request)).models

    async def _bars_for(self, model: str, symbols: Sequence[str], request: Request) -> "BarPanel":
        """Read the bars that a model needs; a model that compares symbols gets all."""
        described = await self._api.call("GetModel", pb.GetModelRequest(model=model), pb.GetModelResponse, request)
        sessions = max(described.model.bars_needed, _SHOWN_SESSIONS)
        return await self._read_bars(request, () if described.model.is_panel_model else symbols, sessions)

    async def _read_bars(self, request: Request, symbols: Sequence[str], sessions: int) -> "BarPanel":
        """Read the last sessions of the ledger; of all symbols without names.

        Raises:
            NoLedgerError: The server has no ledger.
        """
        self._api.admit("ListForecasts", request)  # a token that may read the ledger
        if not self._ledger:
            raise NoLedgerError("the widgets show the bars of a ledger; start the server with --ledger LEDGER")
        async with self._read_permit:
            return await asyncio.to_thread(_read_panel, self._ledger, symbols, sessions)

    async def _forecast(self, model: str, bars: "BarPanel", request: Request) -> Forecast:
        message = pb.PredictRequest(model=model, instances=[instances.encode(Instance(input=bars))])
        result = (await self._api.call("Predict", message, pb.PredictResponse, request)).results[0]
        is_refused = result.WhichOneof("outcome") == "error"
        return require_forecast(errors.decode(result.error) if is_refused else forecasts.decode(result.forecast))


def _read_parameter(request: Request, name: str) -> str:
    text = request.query_params.get(name, "")
    if not text:
        raise MalformedRequestError(f"the query has no {name}; add ?{name}=…")
    return text


def _read_panel(address: str, symbols: Sequence[str], sessions: int) -> "BarPanel":
    with Ledger.open(address) as ledger:
        if not (last := ledger.last_session):
            raise BarsError(f"{ledger.address}: the ledger has no bars; `quantra daily` adds them")
        first = to_date(last) - timedelta(days=sessions * _DAYS_PER_SESSION)
        return ledger.panel(symbols or None, first=first)


def _describe_model(model: pb.ModelInfo) -> dict[str, object]:
    skill = Card.from_json(model.card_json).skill
    return {
        "model": f"{model.name}@{model.version}",
        "aliases": ", ".join(model.aliases),
        "kind": model.kind,
        "target": model.target_kind,
        "horizons": ", ".join(map(str, model.horizons)),
        "skill": "no scores" if skill is None else skill.sentence,
    }


def _forecast_rows(forecast: Forecast) -> Iterator[dict[str, object]]:
    """Yield a row per symbol and horizon; a symbol without a forecast has its reason."""
    for s, symbol in enumerate(forecast.symbols):
        refusal = forecast.refusals.get(symbol)
        for h, horizon in enumerate(forecast.horizons):
            row: dict[str, object] = {"symbol": symbol, "horizon": horizon}
            row["session"] = str(forecast.target_sessions[h]) if forecast.target_sessions else ""
            for q, level in enumerate(forecast.quantiles):
                value = float(forecast.values[s, h, q])
                shown_value = value if forecast.returns is None else convert_to_simple_return(value)
                row[f"p{100 * level:g}".replace(".", "_")] = (
                    shown_value if math.isfinite(shown_value) else None
                )  # a dot means a path
            yield {**row, "problem": "" if refusal is None else refusal.message}


def _draw_fan(bars: "BarPanel", forecast: Forecast, symbol: str) -> object:
    from predictor.report import draw_forecast

    figure = draw_forecast(bars.last(_SHOWN_SESSIONS), forecast, symbol)
    figure.update_layout(height=None)  # the size of the widget
    return json.loads(str(figure.to_json()))
