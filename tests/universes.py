"""Large panels, a model whose version changes between calls, and a channel that records requests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import grpc
import numpy as np
from artifacts import save_artifact, small_artifact
from market import bokeh_panel

from predictor._pb import prediction_pb2 as pb
from predictor.bars import BarPanel
from predictor.call_context import CallContext
from predictor.catalog import ModelInfo
from predictor.forecast import Outcome
from predictor.global_importance import GlobalExplanationQuery, GlobalImportance
from predictor.instance import ExplanationQuery, InstanceOrError, PathQuery
from predictor.service import (
    LazyRequest,
    PredictionRequest,
    PredictionService,
    Simulation,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

    from predictor.arrays import FloatArray
    from predictor.forecast import Explanation

NEEDED = 140
"""Number of bars that a small model reads."""
SEEN = 60
"""Number of those that its network reads."""
COLUMNS = ("open", "high", "low", "close", "volume")


def universe(symbols: int, sessions: int = 400) -> BarPanel:
    """Real bars of four stocks, repeated at different scales, so that no two symbols are equal."""
    four = bokeh_panel("AAPL", "GOOG", "IBM", "MSFT").last(sessions)
    rows = np.arange(symbols) % len(four.symbols)
    scale = (1 + 0.01 * np.arange(symbols))[:, None]
    prices = {name: getattr(four, name)[rows] * scale for name in (*COLUMNS[:-1], "adj_close")}
    names = tuple(f"S{place:04d}" for place in range(symbols))
    return replace(four, symbols=names, volume=four.volume[rows], **prices)


def without_bars(panel: BarPanel, row: int, when: slice) -> BarPanel:
    """The panel without these bars of a symbol."""
    columns = {name: getattr(panel, name).copy() for name in panel.columns}
    for column in columns.values():
        column[row, when] = np.nan
    return replace(panel, **columns)


def with_holes(panel: BarPanel) -> BarPanel:
    """The bars with missing days, a symbol that ended earlier, and a young one."""
    holes = without_bars(panel, 0, slice(-70, -66))
    holes = without_bars(holes, 1, slice(-30, None))
    return without_bars(holes, 2, slice(None, -100))


def with_events(panel: BarPanel) -> BarPanel:
    """The bars with splits and dividends instead of adjusted closes, before and within the last `NEEDED` bars."""
    shape = panel.close.shape
    split, paid = np.ones(shape), np.zeros(shape)
    for days_ago in (300, NEEDED + 1, NEEDED, NEEDED - 1, 100, 3):
        split[0, -days_ago] = 2.0
        paid[1, -days_ago] = 0.01
        paid[0, -days_ago + 1] = 0.02
    return replace(panel, adj_close=None, split_ratio=split, cash_dividend=paid)


def raw(panel: BarPanel) -> BarPanel:
    """The bars without adjustments, and with a price jump before and within the last `NEEDED` bars."""
    factor: FloatArray = np.ones(panel.close.shape)
    factor[0, : -NEEDED - 20] = 3.0
    factor[1, :-50] = 2.0
    prices = {name: getattr(panel, name) * factor for name in COLUMNS[:-1]}
    return replace(panel, **prices, adj_close=None)


def two_versions(folder: Path) -> Path:
    """Write version 1, which reads `NEEDED` bars, and version 2, which reads 40 more and has other weights."""
    longer = small_artifact(seed=1)
    longer = replace(
        longer,
        manifest=replace(longer.manifest, encoder_length=SEEN + 40),
        pipeline=replace(longer.pipeline, encoder_length=SEEN + 40),
    )
    for version, made in enumerate((small_artifact(), longer), 1):
        save_artifact(folder / "small" / str(version), made)
    return folder


@final
class VersionSwitchingService(PredictionService):
    """A service that uses the given versions in turn.

    Args:
        service: of all versions.
        versions: of each prediction or explanation in turn; the last one stays.
        told: what is told of the model; None = of the version of the next one.
    """

    def __init__(self, service: PredictionService, *versions: int, told: int | None = None) -> None:
        self._service = service
        self._versions = list(versions)
        self._told = told

    def models(self) -> tuple[ModelInfo, ...]:
        return self._service.models()

    def model(self, reference: str) -> ModelInfo:
        return self._service.model(reference if "@" in reference else f"small@{self._told or self._versions[0]}")

    def predict(
        self,
        reference: str,
        request: PredictionRequest | Sequence[InstanceOrError],
        context: CallContext,
        encode: Callable[[tuple[Outcome, ...]], Any] | None = None,
        *,
        inline: bool = False,
    ) -> "Future[Any]":
        del reference
        return self._service.predict(self._next(), request, context, encode, inline=inline)

    def explain(
        self, reference: str, request: LazyRequest[ExplanationQuery] | ExplanationQuery, context: CallContext
    ) -> "Future[Explanation]":
        del reference
        return self._service.explain(self._next(), request, context)

    def simulate(self, reference: str, request: LazyRequest[PathQuery], context: CallContext) -> "Future[Simulation]":
        del reference
        return self._service.simulate(self._next(), request, context)

    def explain_global(
        self,
        reference: str,
        request: LazyRequest[GlobalExplanationQuery] | GlobalExplanationQuery,
        report: Callable[[GlobalImportance], object],
        context: CallContext,
    ) -> "Future[GlobalImportance]":
        return self._service.explain_global(reference, request, report, context)

    def _next(self) -> str:
        version = self._versions.pop(0) if len(self._versions) > 1 else self._versions[0]
        return f"small@{version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentCall:
    """A call sent over a channel."""

    name: str
    request: Any
    timeout_s: float

    @property
    def panels(self) -> list[pb.BarPanel]:
        """Panels in the request."""
        return [one.bars for one in self.request.instances]

    @property
    def symbols(self) -> list[str]:
        """Symbols of all its panels."""
        return [symbol for panel in self.panels for symbol in panel.symbols]

    @property
    def sessions(self) -> set[int]:
        """Sessions of each of its panels."""
        return {len(panel.session_yyyymmdd) for panel in self.panels}


@final
@dataclass(slots=True)
class RecordingInterceptor(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Records each call of a channel, and may run a callback before it."""

    before: Callable[[SentCall], None] = lambda _: None
    calls: list[SentCall] = field(default_factory=list[SentCall])

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        self._note(client_call_details, request)
        return continuation(client_call_details, request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """The same."""
        self._note(client_call_details, request)
        return continuation(client_call_details, request)

    def _note(self, client_call_details: Any, request: Any) -> None:
        name = client_call_details.method.rpartition("/")[2]
        call = SentCall(name=name, request=request, timeout_s=client_call_details.timeout)
        self.calls.append(call)
        self.before(call)

    @property
    def names(self) -> list[str]:
        """Names of the calls, in order."""
        return [call.name for call in self.calls]

    @property
    def predictions(self) -> list[SentCall]:
        """The calls that ask for forecasts."""
        return [call for call in self.calls if call.name == "Predict"]

    def channel(self, target: str) -> grpc.Channel:
        """A channel that records its calls."""
        return grpc.intercept_channel(grpc.insecure_channel(target), self)


@final
class AsyncRecordingInterceptor(grpc.aio.UnaryUnaryClientInterceptor):
    """The asyncio version, which records into a `RecordingInterceptor`."""

    def __init__(self, noting: RecordingInterceptor) -> None:
        self._noting = noting

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        name = client_call_details.method.decode().rpartition("/")[2]
        call = SentCall(name=name, request=request, timeout_s=client_call_details.timeout)
        self._noting.calls.append(call)
        self._noting.before(call)
        return await continuation(client_call_details, request)

    def channel(self, target: str) -> grpc.aio.Channel:
        """A channel that records its calls."""
        return grpc.aio.insecure_channel(target, interceptors=[self])
