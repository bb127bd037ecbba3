"""Calls that share a batch get the same responses as calls that are alone."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import cache
from typing import Final, final

import numpy as np
import pytest
from artifacts import NO_SKILL, recent_bars, small_artifact, small_model, with_skill
from hypothesis import given, settings
from hypothesis import strategies as st

from predictor._pb import prediction_pb2 as pb
from predictor.artifact import Artifact, Conformal
from predictor.bars import BarPanel
from predictor.call_context import CallContext, Observation
from predictor.calls import PredictionCalls
from predictor.dates import to_date
from predictor.errors import CallCancelledError, DeadlineExceededError
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import FeatureWindow, Instance, InstanceOrError
from predictor.model import Model
from predictor.registry import CHAMPION, ModelVersions, Registry
from predictor.service import LazyRequest, PredictionRequest, PredictionService
from predictor.wire import instances

SOON_S: Final = 30
BARS: Final = recent_bars("AAPL", "IBM", "MSFT")


def uncalibrated(made: Artifact) -> Artifact:
    horizons = len(made.manifest.target.horizons)
    offsets = Conformal(offsets=((0.0, 0.0, 0.0),) * horizons, effective_samples=(100.0,) * horizons)
    return replace(made, manifest=replace(made.manifest, conformal=offsets))


ARTIFACTS: Final[Mapping[str, Artifact]] = {
    "lstm": with_skill(small_artifact(), NO_SKILL),
    "tft": small_artifact("tft"),
    "uncalibrated": uncalibrated(small_artifact(seed=1)),
    "fitted levels": small_artifact(fitted=True),
    "graph": small_artifact("graph"),
}
WINDOWED: Final = sorted(ARTIFACTS)


@cache
def models() -> Mapping[str, Model]:
    return {name: small_model(made, name) for name, made in ARTIFACTS.items()}


@final
class Counted:
    """An observer that counts the reasons of failed instances."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []

    def on_queued(self, model: str, version: int) -> None:
        pass

    def on_finished(self, observation: Observation) -> None:
        self.observations.append(observation)


@final
class Gate:
    """A request that keeps the worker busy until it is opened, so that later requests form one batch."""

    def __init__(self) -> None:
        self.begun, self.opened = threading.Event(), threading.Event()
        self.request: PredictionRequest = LazyRequest(self._decode, 1)

    def _decode(self) -> Sequence[InstanceOrError]:
        self.begun.set()
        self.opened.wait(SOON_S)
        return [Instance(input=BARS.select(["AAPL"]))]


@cache
def service() -> tuple[PredictionService, PredictionCalls, Counted]:
    lines = {name: ModelVersions(versions={1: model}, aliases={CHAMPION: 1}) for name, model in models().items()}
    observer = Counted()
    opened = PredictionService(Registry(models=lines, problems=()), clock=lambda: AFTER_ALL_SESSIONS, observer=observer)
    return opened, PredictionCalls(opened), observer


def window_of(model: Model, bars: BarPanel) -> FeatureWindow:
    pipeline = model.pipeline
    groups = {
        name: group.numpy() for name, group in pipeline.latest_window(pipeline.encode_latest(bars))._asdict().items()
    }
    if not pipeline.normaliser.is_per_horizon:
        groups |= {name: groups[name][:, 0].copy() for name in ("location", "scale")}
    return FeatureWindow(
        **groups,
        symbols=bars.symbols,
        schema_hash=pipeline.features.schema_hash,
        anchor_price=bars.close[:, -1],
        as_of_session=to_date(int(bars.sessions[-1])),
    )


@cache
def requests_of(name: str) -> Mapping[str, bytes]:
    """Encoded requests to a model, good and bad ones."""
    model = models()[name]
    one, several = window_of(model, BARS.select(["AAPL"])), window_of(model, BARS)
    masked = one.mask.copy()
    masked[0, :3] = False
    nan = one.observed.copy()
    nan[0, 0, 0] = np.nan
    features = model.pipeline.features.features.names
    windows: Mapping[str, Sequence[FeatureWindow | BarPanel]] = {
        "one": [one],
        "another": [window_of(model, BARS.select(["MSFT"]))],
        "earlier": [window_of(model, BARS.until(int(BARS.sessions[-9])))],
        "several rows": [several],
        "several instances": [one, several, replace(one, anchor_price=None)],
        "one bad instance of three": [one, replace(one, observed=nan), several],
        "masked": [replace(one, mask=masked, observed=one.observed * masked)],
        "masked but not 0": [replace(one, mask=masked, observed=np.ones_like(one.observed))],
        "all masked": [replace(one, mask=np.zeros_like(masked), observed=np.zeros_like(one.observed))],
        "no anchor": [replace(one, anchor_price=None)],
        "an impossible anchor": [replace(several, anchor_price=np.array([1.0, -1.0, 1.0]))],
        "features listed": [replace(one, features=features)],
        "features in another order": [replace(one, features=features[::-1])],
        "an unknown feature": [replace(one, features=("x", *features[1:]))],
        "another schema": [replace(one, schema_hash="0" * 64)],
        "NaN": [replace(one, observed=nan)],
        "beyond the bound": [replace(one, known=one.known + np.float32(1e7))],
        "no volatility": [replace(several, scale=several.scale * 0)],
        "a short window": [replace(one, observed=one.observed[:, 1:], mask=one.mask[:, 1:])],
        "no session": [replace(one, as_of_session=date(2013, 3, 2))],
        "after the calendar": [replace(one, as_of_session=date(2150, 3, 2))],
        "no date": [replace(one, as_of_session=None)],
        "an unprintable symbol": [replace(one, symbols=("A\n",))],
        "bars": [BARS],
        "too few bars": [BARS.last(10)],
        "bars without volume": [replace(BARS, volume=np.zeros_like(BARS.volume))],
    }
    encoded = {
        kind: pb.PredictRequest(
            model=name,
            instances=[instances.encode(Instance(input=part, request_id=f"r{k}")) for k, part in enumerate(parts)],
        )
        for kind, parts in windows.items()
    }
    stale = Instance(input=one, max_age_sessions=3)
    unaged = Instance(input=replace(one, as_of_session=None), max_age_sessions=3)
    encoded |= {
        "stale": pb.PredictRequest(model=name, instances=[instances.encode(stale)]),
        "of unknown age": pb.PredictRequest(model=name, instances=[instances.encode(unaged)]),
        "without input": pb.PredictRequest(model=name, instances=[pb.Instance(request_id="x")]),
    }
    return {kind: message.SerializeToString() for kind, message in encoded.items()}


def kinds_of_requests() -> Sequence[str]:
    return sorted(requests_of("lstm"))


def responses_together(name: str, bodies: Sequence[bytes]) -> list[bytes]:
    """Call with all bodies while the model's worker is busy, so that it takes them as one batch."""
    opened, calls, _ = service()
    gate = Gate()
    held = opened.predict(name, gate.request, CallContext())
    assert gate.begun.wait(SOON_S)
    answers = [calls.handle("Predict", body, CallContext()) for body in bodies]
    gate.opened.set()
    held.result(SOON_S)
    return [answer.result(SOON_S) for answer in answers]


@cache
def response_alone(name: str, kind: str) -> bytes:
    return service()[1].handle("Predict", requests_of(name)[kind], CallContext(), inline=True).result(SOON_S)


def assert_same(found: bytes, expected: bytes) -> None:
    """Compare bytes, but numbers up to the rounding of a network that computes another number of rows."""
    messages = [pb.PredictResponse.FromString(body) for body in (found, expected)]
    for ours, theirs in zip(*(message.results for message in messages), strict=True):
        for field in ("values", "returns", "prices", "scores"):
            arrays = [np.frombuffer(getattr(result.forecast, field)) for result in (ours, theirs)]
            np.testing.assert_allclose(*arrays, rtol=1e-5, atol=1e-6)
            for result in (ours, theirs):
                if result.HasField("forecast"):
                    result.forecast.ClearField(field)  # pyright: ignore[reportArgumentType]
    assert messages[0].SerializeToString(deterministic=True) == messages[1].SerializeToString(deterministic=True)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(WINDOWED),
    kinds=st.lists(st.deferred(lambda: st.sampled_from(kinds_of_requests())), min_size=2, max_size=12),
)
def test_no_other_call_of_a_batch_changes_a_response(name: str, kinds: list[str]) -> None:
    found = responses_together(name, [requests_of(name)[kind] for kind in kinds])
    for kind, body in zip(kinds, found, strict=True):
        assert_same(body, response_alone(name, kind))


@pytest.mark.parametrize("name", WINDOWED)
def test_every_bad_request_is_refused_by_name_among_good_ones(name: str) -> None:
    kinds = kinds_of_requests()
    found = responses_together(name, [requests_of(name)[kind] for kind in kinds])
    errors = {
        kind: [
            result.error.reason for result in pb.PredictResponse.FromString(body).results if result.HasField("error")
        ]
        for kind, body in zip(kinds, found, strict=True)
    }
    good = {
        "one", "another", "earlier", "several rows", "several instances", "masked", "no anchor", "features listed",
        "no date", "bars", "bars without volume",
    }  # fmt: skip
    assert {kind for kind, reasons in errors.items() if not reasons} == good
    assert len(errors["one bad instance of three"]) == 1


def test_calls_that_expire_or_are_cancelled_in_a_batch_leave_the_others_alone() -> None:
    opened, calls, observer = service()
    kind, gate = "one bad instance of three", Gate()
    body, expected = requests_of("lstm")[kind], response_alone("lstm", kind)
    held = opened.predict("lstm", gate.request, CallContext())
    assert gate.begun.wait(SOON_S)
    before = len(observer.observations)
    cancelled, late = CallContext(), CallContext(expires_at_s=0.0)
    answers = [calls.handle("Predict", body, context) for context in (CallContext(), cancelled, late, CallContext())]
    cancelled.cancel()
    gate.opened.set()
    held.result(SOON_S)
    assert isinstance(answers[1].exception(SOON_S), CallCancelledError)
    assert isinstance(answers[2].exception(SOON_S), DeadlineExceededError)
    for answer in (answers[0], answers[3]):
        assert_same(answer.result(SOON_S), expected)
    seen = [one for one in observer.observations[before:] if one.rows == 5]
    assert sorted(one.code for one in seen) == ["CANCELLED", "DEADLINE_EXCEEDED", "OK", "OK"]
    assert [one.refused for one in seen if one.code == "OK"] == [("INVALID_INPUT",)] * 2
