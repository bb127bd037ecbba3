"""A prediction service with fixed answers that a test can delay or break."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from typing import Any, TypeVar, final

import numpy as np

from predictor.call_context import CallContext
from predictor.catalog import CovariateGroup, CovariateInfo, FeatureInfo, ModelInfo
from predictor.errors import ModelNotFoundError, QuantraError
from predictor.forecast import Attribution, Explanation, Forecast, Outcome, RowKind
from predictor.global_importance import GlobalExplanationQuery, GlobalImportance, TargetImportance
from predictor.instance import INTEGRATED_GRADIENTS, ExplanationQuery, Instance, InstanceOrError, PathQuery
from predictor.internals import Internal, InternalAxis
from predictor.memory import make_caller_error
from predictor.service import (
    LazyRequest,
    PredictionRequest,
    PredictionService,
    Simulation,
)

ResponseT = TypeVar("ResponseT")

_log = logging.getLogger(__name__)

_MAX_WAIT_S = 30
"""Timeout, so that a failing test does not block its process."""


class CannedService(PredictionService):
    """Answers each instance with `answer`, once `released` is set (it is, at first)."""

    def __init__(self, answer: Callable[[Instance], Outcome]) -> None:
        self._answer = answer
        self._predicting = ThreadPoolExecutor(1)
        self._explaining = ThreadPoolExecutor(1)
        self.predictions_released, self.explanations_released = threading.Event(), threading.Event()
        self.predictions_released.set()
        self.explanations_released.set()
        self.begun = threading.Event()
        """A call has begun."""
        self.contexts: list[CallContext] = []

    def models(self) -> tuple[ModelInfo, ...]:
        return (model_info(),)

    def model(self, reference: str) -> ModelInfo:
        if reference not in {"", "canned", "canned@1"}:
            raise ModelNotFoundError(f"there is no model {reference!r}; there are ['canned']")
        return model_info()

    def predict(
        self,
        reference: str,
        request: PredictionRequest | Sequence[InstanceOrError],
        context: CallContext,
        encode: Callable[[tuple[Outcome, ...]], Any] | None = None,
        *,
        inline: bool = False,
    ) -> "Future[Any]":
        del inline
        assert encode is not None
        assert not isinstance(request, Sequence)
        self.model(reference)
        return self._predicting.submit(self._forecast, request, context, encode)

    def explain(
        self, reference: str, request: LazyRequest[ExplanationQuery] | ExplanationQuery, context: CallContext
    ) -> "Future[Explanation]":
        assert isinstance(request, LazyRequest)
        self.model(reference)
        return self._explaining.submit(self._answer_query, request, context)

    def simulate(self, reference: str, request: LazyRequest[PathQuery], context: CallContext) -> "Future[Simulation]":
        raise NotImplementedError

    def explain_global(
        self,
        reference: str,
        request: LazyRequest[GlobalExplanationQuery] | GlobalExplanationQuery,
        report: Callable[[GlobalImportance], object],
        context: CallContext,
    ) -> "Future[GlobalImportance]":
        assert isinstance(request, LazyRequest)
        self.model(reference)
        self.contexts.append(context)
        known = importance(len(request.decode().instances))
        report(known)
        return self._explaining.submit(self._answer_global, known)

    def is_cancelled_soon(self) -> bool:
        """Wait until the first call is cancelled."""
        until_s = time.monotonic() + _MAX_WAIT_S
        while not (is_cancelled := self.contexts[0].is_cancelled) and time.monotonic() < until_s:
            threading.Event().wait(0.01)
        return is_cancelled

    def settle(self) -> None:
        """Wait until every request has its response."""
        self._predicting.submit(lambda: None).result(_MAX_WAIT_S)

    def _forecast(
        self, asked: PredictionRequest, context: CallContext, encode: Callable[[tuple[Outcome, ...]], ResponseT]
    ) -> ResponseT:
        self.contexts.append(context)
        self.begun.set()
        self.predictions_released.wait(_MAX_WAIT_S)
        try:
            return encode(tuple(one if isinstance(one, QuantraError) else self._answer(one) for one in asked.decode()))
        except Exception as error:
            raise make_caller_error("Predict", error, _log) from error

    def _answer_query(self, asked: LazyRequest[ExplanationQuery], context: CallContext) -> Explanation:
        query = asked.decode()
        self.contexts.append(context)
        self.begun.set()
        self.explanations_released.wait(_MAX_WAIT_S)
        return Explanation(attributions=(attribution(query.instance.input.symbols),), queue_ms=0.25, compute_ms=1.5)

    def _answer_global(self, known: GlobalImportance) -> GlobalImportance:
        self.explanations_released.wait(_MAX_WAIT_S)
        return known


def forecast_of(instance: Instance) -> Forecast:
    """A forecast of the instance's symbols, different for each."""
    return forecast(instance.input.symbols)


def forecast(symbols: tuple[str, ...]) -> Forecast:
    """2 horizons, 3 quantiles; one number is NaN, one has no short decimal."""
    values = np.arange(6.0 * len(symbols)).reshape(len(symbols), 2, 3) / 7 + len(symbols[0])
    values[0, 0, 0] = np.nan
    return Forecast(
        symbols=symbols,
        as_of_session=date(2013, 3, 1),
        target_sessions=(date(2013, 3, 4), date(2013, 3, 8)),
        lag=0,
        horizons=(1, 5),
        quantiles=(0.1, 0.5, 0.9),
        target_kind="log-return",
        values=values,
        returns=values / 3,
        prices=None,
        anchor_price=np.full(len(symbols), 430.47),
        model="canned",
        version=1,
        weights_hash="0" * 64,
        warnings=("nothing is real",),
        forecast_id="f" * 32,
    )


def ranking(symbols: tuple[str, ...]) -> Forecast:
    """A forecast of a ranking model; the first symbol could not be forecast."""
    scores = np.arange(2.0 * len(symbols)).reshape(len(symbols), 2) / 7
    scores[0] = np.nan
    ranks = np.tile(np.arange(len(symbols), dtype=np.int32)[:, None], (1, 2))
    return replace(forecast(symbols), scores=scores, ranks=ranks, universe_hash="0123456789abcdef")


def attribution(symbols: tuple[str, ...]) -> Attribution:
    """3 rows, two of them observed, over 4 sessions."""
    count = len(symbols)
    return Attribution(
        symbols=symbols,
        as_of_session=date(2013, 3, 1),
        horizon=5,
        quantile=0.5,
        method=INTEGRATED_GRADIENTS,
        baseline="train_mean",
        unit="log return",
        row_names=("ret_1", "vol_20", "scale"),
        row_kinds=(RowKind.OBSERVED, RowKind.OBSERVED, RowKind.SCALE),
        per_row=np.arange(3.0 * count).reshape(count, 3) / 7,
        sessions=tuple(date(2013, 2, day) for day in (25, 26, 27, 28)),
        per_time=np.arange(4.0 * count).reshape(count, 4) / 7,
        cells=np.arange(8.0 * count).reshape(count, 4, 2) / 7,
        prediction=np.full(count, 0.01),
        baseline_prediction=np.full(count, 0.002),
        relative_gap=np.full(count, 0.001),
        converged=np.full(count, fill_value=True),
        nodes=np.full(count, 32, np.int32),
        model="canned",
        version=1,
        weights_hash="0" * 64,
        warnings=(),
    )


def attribution_with_internals(symbols: tuple[str, ...]) -> Attribution:
    """An attribution of a network with internals that looks across stocks."""
    weights = np.arange(1.0, 3.0 * len(symbols) + 1).reshape(len(symbols), 3)
    attention = Internal(
        name="attention",
        axis=InternalAxis.SESSIONS,
        labels=("-1", "0", "+1"),
        values=weights / weights.sum(1, keepdims=True),
    )
    selection = Internal(
        name="selection of static variables",
        axis=InternalAxis.INPUTS,
        labels=("sector",),
        values=np.ones((len(symbols), 1)),
    )
    plain = attribution(symbols)
    return replace(
        plain,
        row_kinds=(RowKind.OBSERVED, RowKind.OBSERVED, RowKind.NEIGHBOURS),
        row_names=("ret_1", "vol_20", "neighbours"),
        internals=(selection, attention),
    )


def importance(count: int) -> GlobalImportance:
    """Importance of two rows for one target, after `count` instances."""
    target = TargetImportance(
        horizon=5,
        quantile=0.5,
        unit="log return",
        row_names=("ret_1", "scale"),
        row_kinds=(RowKind.OBSERVED, RowKind.SCALE),
        mean_size=np.array([0.25, 1 / 3]),
        standard_error=np.array([np.nan, 0.125]),
        windows=count,
        converged_share=1.0,
    )
    return GlobalImportance(
        model="canned",
        version=1,
        weights_hash="0" * 64,
        targets=(target,),
        done=count,
        total=count,
        refused=0,
        refused_symbols=0,
        refusals=(),
    )


def model_info() -> ModelInfo:
    """ModelInfo with every field set."""
    feature = FeatureInfo(name="ret_1", expression="Ref($close, 1)", meaning="yesterday's close", unit="1")
    return ModelInfo(
        name="canned",
        version=1,
        aliases=("champion",),
        is_default=True,
        kind="lstm",
        observed_features=(feature, feature),
        known_features=(feature,),
        static_features=(),
        covariates=(
            CovariateInfo(name="short_interest", group=CovariateGroup.OBSERVED),
            CovariateInfo(name="earnings", group=CovariateGroup.KNOWN),
            CovariateInfo(name="sector", group=CovariateGroup.STATIC, categories=("Energy", "Tech")),
        ),
        schema_hash="1" * 64,
        encoder_length=60,
        lookback=21,
        bars_needed=80,
        future_length=20,
        horizons=(1, 5),
        quantiles=(0.1, 0.5, 0.9),
        lag=0,
        target_kind="log-return",
        calendar="XNYS",
        calendar_ends=20180301,
        is_panel_model=False,
        is_scaled_per_horizon=False,
        explain_methods=(INTEGRATED_GRADIENTS,),
        weights_hash="0" * 64,
        card_json="{}",
    )


@final
class LargeAnswers:
    """Calls whose answers have 1 MiB."""

    SIZE = 1 << 20

    def __init__(self) -> None:
        self.contexts: list[CallContext] = []

    def handle(self, _name: str, _request: bytes, context: CallContext) -> "Future[bytes]":
        self.contexts.append(context)
        answer: Future[bytes] = Future()
        answer.set_result(bytes(self.SIZE))
        return answer

    def drain(self) -> None:
        """Nothing to drain."""

    def close(self) -> None:
        """Nothing to close."""
