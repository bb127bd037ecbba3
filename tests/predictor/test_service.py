"""Prediction service without wire types: isolated instances, bounded queues, deadlines, and shutdown."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from artifacts import recent_bars, save_small_artifact, small_artifact, small_model
from numpy.typing import NDArray

from predictor.artifact import REPLACE_ADVICE
from predictor.bars import BarPanel
from predictor.call_context import CallContext
from predictor.errors import (
    ArtifactError,
    BarIncompleteError,
    CallCancelledError,
    ConfigurationError,
    DeadlineExceededError,
    ModelNotFoundError,
    NoUsableSymbolError,
    SessionGapError,
    TooFewBarsError,
    UnavailableError,
    UnknownQuantileError,
    VersionNotFoundError,
)
from predictor.forecast import Forecast, Outcome, TargetPoint
from predictor.instance import ExplanationQuery, Instance
from predictor.limits import QueueLimits
from predictor.model import Model
from predictor.registry import ModelVersions, Registry
from predictor.service import PredictionService, QueuedRequest, RequestQueue
from predictor.service.explanations import (
    MAX_PAUSE_S,
    QUIET_S,
    ExplanationDeadline,
    PredictionActivity,
)
from predictor.service.workers import create_request

SOON_S = 30
"""Timeout, so that a failing test does not block its process."""


@pytest.fixture(scope="module")
def model() -> Model:
    return small_model(small_artifact())


@pytest.fixture(scope="module")
def service(model: Model) -> Iterator[PredictionService]:
    with PredictionService(_registry(model)) as opened:
        yield opened


# --- predictions


def test_a_bad_instance_among_good_ones_is_answered_alone(service: PredictionService) -> None:
    bars = recent_bars("AAPL")
    gap = replace(bars.last(150), sessions=np.delete(bars.sessions[-151:], -5))
    asked = [bars, bars.last(29), recent_bars("IBM"), _without_last_bar(bars), gap, recent_bars("MSFT")]
    answers = _predict(service, *(Instance(input=item) for item in asked))
    kinds = [type(answer) for answer in answers]
    assert kinds == [Forecast, TooFewBarsError, Forecast, NoUsableSymbolError, SessionGapError, Forecast]
    assert [a.symbols for a in answers if isinstance(a, Forecast)] == [("AAPL",), ("IBM",), ("MSFT",)]


def test_forecasts_come_in_the_order_asked(service: PredictionService) -> None:
    symbols = [("AAPL",), ("IBM", "MSFT"), ("GOOG",), ("MSFT", "AAPL", "IBM")]
    answers = _predict(service, *(Instance(input=recent_bars(*panel)) for panel in symbols))
    for panel, answer in zip(symbols, answers, strict=True):
        assert isinstance(answer, Forecast)
        assert answer.symbols == panel
        alone = _predict(service, Instance(input=recent_bars(*panel)))[0]
        assert isinstance(alone, Forecast)
        np.testing.assert_allclose(answer.values, alone.values, rtol=0, atol=1e-6)
        assert answer.forecast_id == alone.forecast_id


def test_no_instances_have_no_answers(service: PredictionService) -> None:
    assert _predict(service) == ()


def test_only_bad_instances_have_only_errors(service: PredictionService) -> None:
    answers = _predict(service, Instance(input=recent_bars("AAPL").last(3)))
    assert [type(answer) for answer in answers] == [TooFewBarsError]


def test_the_injected_clock_decides_whether_a_bar_is_a_close(model: Model) -> None:
    now = [datetime(2013, 3, 1, 20, 59, 59, tzinfo=UTC)]
    with PredictionService(_registry(model), clock=lambda: now[0]) as service:
        assert isinstance(_predict(service, Instance(input=recent_bars("AAPL")))[0], BarIncompleteError)
        with pytest.raises(BarIncompleteError):
            service.explain("", _query(), CallContext()).result(SOON_S)
        now[0] = datetime(2013, 3, 1, 21, 0, tzinfo=UTC)
        assert isinstance(_predict(service, Instance(input=recent_bars("AAPL")))[0], Forecast)


def test_a_model_that_is_not_there_is_refused_at_the_call(service: PredictionService) -> None:
    with pytest.raises(ModelNotFoundError, match=r"there are \['small'\]"):
        service.predict("big", [], CallContext())
    with pytest.raises(VersionNotFoundError, match=r"versions \[1\]"):
        service.explain("small@2", _query(), CallContext())
    with pytest.raises(ModelNotFoundError):
        service.model("../../x")


def test_a_service_lists_its_models(service: PredictionService) -> None:
    assert [(info.name, info.version) for info in service.models()] == [("small", 1)]
    assert service.model("small@1") == service.models()[0]


def test_a_model_does_not_wait_for_another(model: Model) -> None:
    with _held_at_first(model, small_model(small_artifact(), "other")) as (service, held):
        answered = service.predict("other", [Instance(input=recent_bars("AAPL"))], CallContext()).result(SOON_S)
        assert isinstance(answered[0], Forecast)
        assert not held.done()


# --- explanations


def test_an_explanation_reports_its_duration(service: PredictionService) -> None:
    explanation = service.explain("small", _query(), CallContext()).result(SOON_S)
    assert [(a.horizon, a.quantile) for a in explanation.attributions] == [(5, 0.5)]
    assert explanation.queue_ms >= 0
    assert explanation.compute_ms > 0


def test_an_explanation_that_cannot_be_is_refused_through_the_future(service: PredictionService) -> None:
    query = replace(_query(), targets=(TargetPoint(5, 0.75),))
    with pytest.raises(UnknownQuantileError, match=r"quantile 0.75 is not forecast; the model has \[0.1, 0.5, 0.9\]"):
        service.explain("small", query, CallContext()).result(SOON_S)


@pytest.mark.slow
def test_predictions_while_explanations_run_are_the_same_bits(service: PredictionService) -> None:
    instance = Instance(input=recent_bars("AAPL", "IBM", "MSFT"))
    alone = _values(service, instance)
    query = ExplanationQuery(instance=instance, tolerance=1e-4)
    explanations = [service.explain("small", query, CallContext()) for _ in range(3)]
    beside = 0
    while not explanations[-1].done() or beside < 20:
        assert np.array_equal(_values(service, instance), alone)
        beside += 1
    first, *others = [e.result(SOON_S).attributions for e in explanations]
    for other in others:
        assert all(np.array_equal(a.per_row, b.per_row) for a, b in zip(first, other, strict=True))


def test_an_explanation_leaves_the_network_unchanged(model: Model) -> None:
    network = model.engine.network
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    torch.manual_seed(4)
    state = torch.get_rng_state()
    with PredictionService(_registry(model)) as service:
        service.explain("", _query(), CallContext()).result(SOON_S)
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in network.parameters())
    assert not any(module.training for module in network.modules())
    assert torch.equal(torch.get_rng_state(), state)


# --- preemption


class Clock:
    """A clock that advances only in sleep, and calls `meanwhile` then."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.meanwhile = lambda: None

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.meanwhile()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def predictions(clock: Clock) -> RequestQueue:
    return RequestQueue(QueueLimits(), clock=clock)


@pytest.fixture
def activity(clock: Clock, predictions: RequestQueue) -> PredictionActivity:
    return PredictionActivity(predictions, clock=clock, sleep=clock.sleep)


def begin_prediction(predictions: RequestQueue) -> QueuedRequest[Any]:
    item: QueuedRequest[Any] = QueuedRequest(create_request(()), CallContext())
    predictions.put("m", item)
    return item


def test_without_predictions_nothing_pauses(
    clock: Clock, predictions: RequestQueue, activity: PredictionActivity
) -> None:
    activity.wait_until_quiet()
    predictions.release([begin_prediction(predictions)])
    clock.now_s += QUIET_S
    before_s = clock.now_s
    activity.wait_until_quiet()
    assert clock.now_s == before_s


def test_after_a_prediction_a_pause_lasts_until_it_is_quiet(
    clock: Clock, predictions: RequestQueue, activity: PredictionActivity
) -> None:
    predictions.release([begin_prediction(predictions)])
    activity.wait_until_quiet()
    assert 1000 + QUIET_S <= clock.now_s < 1000 + 2 * QUIET_S


def test_while_a_prediction_is_under_way_a_pause_lasts_however_long_it_takes(
    clock: Clock, predictions: RequestQueue, activity: PredictionActivity
) -> None:
    """A prediction longer than the quiet time used to be overtaken, when only its start counted."""
    late, other = begin_prediction(predictions), begin_prediction(predictions)
    predictions.release([other])

    def end_late() -> None:
        if clock.now_s > 1000 + 5 * QUIET_S and predictions.load.calls:
            predictions.release([late])

    clock.meanwhile = end_late
    activity.wait_until_quiet()
    assert 1000 + 6 * QUIET_S <= clock.now_s < 1000 + 7 * QUIET_S


def test_predictions_without_end_do_not_stop_other_work(
    clock: Clock, predictions: RequestQueue, activity: PredictionActivity
) -> None:
    begin_prediction(predictions)
    activity.wait_until_quiet()
    assert 1000 + MAX_PAUSE_S <= clock.now_s < 1000 + MAX_PAUSE_S + QUIET_S


def test_a_pause_ends_at_a_deadline_that_has_passed(activity: PredictionActivity) -> None:
    with pytest.raises(DeadlineExceededError):
        ExplanationDeadline(CallContext.with_timeout(0), activity, 30).check()


def test_explanations_pause_between_their_steps_and_predictions_never(
    service: PredictionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[PredictionActivity] = []

    def pause(activity: PredictionActivity) -> None:
        pauses.append(activity)

    monkeypatch.setattr(PredictionActivity, "wait_until_quiet", pause)
    _predict(service, Instance(input=recent_bars("AAPL")))
    assert not pauses
    service.explain("small", _query(), CallContext()).result(SOON_S)
    assert len(pauses) >= 3  # at the start, before the forecasts at both ends, and before the gradients


def test_a_server_limit_ends_an_explanation_with_the_reason(
    activity: PredictionActivity, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [50.0]
    monkeypatch.setattr("predictor.service.explanations.time.monotonic", lambda: now_s[0])
    limited = ExplanationDeadline(CallContext(), activity, 30)
    now_s[0] += 29
    limited.check()
    now_s[0] += 1
    with pytest.raises(DeadlineExceededError, match="limit of 30 seconds; request fewer symbols or targets"):
        limited.check()


# --- deadlines


def test_a_deadline_that_has_passed_is_named(service: PredictionService) -> None:
    with pytest.raises(DeadlineExceededError, match="deadline passed before its response"):
        service.predict("", [Instance(input=recent_bars("AAPL"))], CallContext.with_timeout(0)).result(SOON_S)
    with pytest.raises(DeadlineExceededError):
        service.explain("", _query(), CallContext.with_timeout(0)).result(SOON_S)


def test_a_call_that_was_cancelled_is_named(service: PredictionService) -> None:
    gone = CallContext()
    gone.cancel()
    with pytest.raises(CallCancelledError):
        service.predict("", [Instance(input=recent_bars("AAPL"))], gone).result(SOON_S)
    with pytest.raises(CallCancelledError):
        service.explain("", _query(), gone).result(SOON_S)


def test_an_abandoned_call_is_dropped_before_any_work(model: Model) -> None:
    """Work on a call first looks at the clock."""
    looked = threading.Event()

    def clock() -> datetime:
        looked.set()
        return datetime.now(UTC)

    with PredictionService(_registry(model), clock=clock) as service:
        late = service.predict("", [Instance(input=recent_bars("AAPL"))], CallContext.with_timeout(0))
        late_too = service.explain("", _query(), CallContext.with_timeout(0))
    assert all(isinstance(future.exception(), DeadlineExceededError) for future in (late, late_too))
    assert not looked.is_set()


def test_a_deadline_ahead_lets_a_call_pass() -> None:
    CallContext.with_timeout(3600).check()
    CallContext.with_timeout(None).check()
    CallContext().check()


def test_deadlines_do_not_share_their_flag() -> None:
    one, other = CallContext(), CallContext()
    one.cancel()
    other.check()


# --- workers


def in_a_fork(work: Callable[[], str]) -> str:
    """Output of a forked child within `SOON_S`."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SOON_S)
        try:
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


def asked_in_a_fork(service: PredictionService) -> str:
    try:
        return type(service.predict("small", [], CallContext()).result(SOON_S)).__name__
    except UnavailableError as error:
        return error.message


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_is_refused_at_once_after_its_parent_has_predicted(model: Model) -> None:
    with PredictionService(_registry(model)) as service:
        assert in_a_fork(lambda: asked_in_a_fork(service)) == "tuple"
        assert _predict(service) == ()
        said = in_a_fork(lambda: asked_in_a_fork(service))
        assert f"used in process {os.getpid()}, and this forked process lacks" in said
        assert _predict(service) == ()


def test_no_thread_is_made_before_it_begins(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.13 on, a forked child cannot start a thread created by its parent."""
    made: list[threading.Thread] = []
    make = threading.Thread.__init__

    def noted(thread: threading.Thread, *given: Any, **named: Any) -> None:
        make(thread, *given, **named)
        made.append(thread)

    monkeypatch.setattr(threading.Thread, "__init__", noted)
    with PredictionService(_registry(model)) as service:
        assert made == []
        assert _predict(service) == ()
        assert [thread.name for thread in made] == ["predict-small"]


def asked_here_in_a_fork(service: PredictionService) -> str:
    try:
        return type(service.predict_inline("small", [], CallContext())).__name__
    except UnavailableError as error:
        return error.message


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_that_would_answer_in_its_own_thread_is_refused_too(model: Model) -> None:
    with PredictionService(_registry(model)) as service:
        assert _predict(service) == ()
        assert "this forked process lacks their threads" in in_a_fork(lambda: asked_here_in_a_fork(service))


def test_closing_a_service_answers_what_waits(model: Model) -> None:
    service = PredictionService(_registry(model))
    futures = [service.predict("", [Instance(input=recent_bars("AAPL"))], CallContext()) for _ in range(20)]
    explanation = service.explain("", _query(), CallContext())
    service.close()
    assert all(future.done() and isinstance(future.result()[0], Forecast) for future in futures)
    assert explanation.done()
    assert explanation.result().attributions
    with pytest.raises(UnavailableError):
        service.predict("", [], CallContext())
    with pytest.raises(UnavailableError):
        service.explain("", _query(), CallContext())


# --- opening


def test_a_folder_of_models_opens_and_names_what_it_refused(tmp_path: Path) -> None:
    save_small_artifact(tmp_path / "small" / "1")
    (tmp_path / "small" / "2").mkdir()
    with PredictionService.open(tmp_path, device="cpu") as service:
        assert isinstance(_predict(service, Instance(input=recent_bars("AAPL")))[0], Forecast)
        assert [(type(p), p.message) for p in service.problems] == [
            (ArtifactError, f"small/2: manifest.json: the file is missing; {REPLACE_ADVICE}")
        ]


def test_a_device_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="device 'cuda:99' is not available"):
        PredictionService.open(tmp_path, device="cuda:99")
    with pytest.raises(ConfigurationError, match="unknown device 'abacus'; use auto, cpu, cuda, cuda:N"):
        PredictionService.open(tmp_path, device="abacus")


def test_a_device_without_float64_is_refused_before_it_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"device 'mps' has no float64.*use --device cpu"):
        PredictionService.open(tmp_path, device="mps")


def _registry(*models: Model) -> Registry:
    lines = {one.identity.name: ModelVersions.of(one) for one in models}
    return Registry(models=lines, problems=())


@contextmanager
def _held_at_first(*models: Model) -> Generator[tuple[PredictionService, Future[tuple[Outcome, ...]]]]:
    """A service in which the first prediction is paused at the clock until the block ends."""
    begun, released = threading.Event(), threading.Event()

    def clock() -> datetime:
        if not begun.is_set():
            begun.set()
            released.wait(SOON_S)
        return datetime.now(UTC)

    with PredictionService(_registry(*models), clock=clock) as service:
        asked = [Instance(input=recent_bars("AAPL"))]
        try:
            held = service.predict(models[0].identity.name, asked, CallContext())
            assert begun.wait(SOON_S)
            yield service, held
        finally:
            released.set()


def _predict(service: PredictionService, *instances: Instance) -> tuple[object, ...]:
    return service.predict("", instances, CallContext()).result(SOON_S)


def _values(service: PredictionService, instance: Instance) -> NDArray[np.float64]:
    answer = _predict(service, instance)[0]
    assert isinstance(answer, Forecast)
    return answer.values


def _without_last_bar(bars: BarPanel) -> BarPanel:
    names = ("open", "high", "low", "close", "volume", "adj_close")
    columns = {name: getattr(bars, name).copy() for name in names}
    for column in columns.values():
        column[:, -1] = np.nan
    return replace(bars, **columns)


def _query() -> ExplanationQuery:
    return ExplanationQuery(instance=Instance(input=recent_bars("AAPL")), targets=(TargetPoint(5, 0.5),))
