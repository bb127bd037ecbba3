"""Observers: one observation per request, with its outcome and times."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import final

import pytest
from artifacts import recent_bars, small_artifact, small_model

from predictor.call_context import CallContext, Observation
from predictor.errors import ModelNotFoundError, QueueFullError, UnavailableError
from predictor.forecast import Forecast, TargetPoint
from predictor.global_importance import GlobalExplanationQuery
from predictor.instance import ExplanationQuery, Instance
from predictor.limits import QueueLimits, ServiceLimits
from predictor.model import Model
from predictor.registry import ModelVersions, Registry
from predictor.service import LazyRequest, PredictionRequest, PredictionService

SOON_S = 30
"""Timeout, so that a failing test does not block its process."""


@final
@dataclass
class RecordingObserver:
    """An observer that records observations."""

    reached_models: list[tuple[str, int]] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)

    def on_queued(self, model: str, version: int) -> None:
        self.reached_models.append((model, version))

    def on_finished(self, observation: Observation) -> None:
        self.observations.append(observation)


@final
class BlockingInstance:
    """An instance that blocks while it is read, and so occupies its model's thread."""

    def __init__(self) -> None:
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.request: PredictionRequest = LazyRequest(self._decode, 1, 10)

    def _decode(self) -> tuple[Instance, ...]:
        self.begun.set()
        self.may_go_on.wait(SOON_S)
        return (Instance(input=recent_bars()),)


@pytest.fixture(scope="module")
def model() -> Model:
    return small_model(small_artifact())


@pytest.fixture
def heard() -> RecordingObserver:
    return RecordingObserver()


@pytest.fixture
def service(model: Model, heard: RecordingObserver) -> Iterator[PredictionService]:
    with service_of(model, heard) as opened:
        yield opened


def service_of(model: Model, heard: RecordingObserver | None, limits: ServiceLimits | None = None) -> PredictionService:
    registry = Registry(models={"small": ModelVersions.of(model)}, problems=())
    return PredictionService(registry, observer=heard, limits=limits)


def test_a_forecast_is_observed_with_its_model_rows_and_times(
    service: PredictionService, heard: RecordingObserver
) -> None:
    service.predict("", [Instance(input=recent_bars("AAPL", "IBM"))], CallContext()).result(SOON_S)
    (seen,) = heard.observations
    assert heard.reached_models == [("small", 1)]
    assert (seen.method, seen.model, seen.version, seen.rows, seen.batch_rows) == ("Predict", "small", 1, 2, 2)
    assert (seen.code, seen.reason, seen.refused) == ("OK", "", ())
    stages = (seen.queue_s, seen.prepare_s, seen.forward_s)
    assert all(seconds is not None and seconds > 0 for seconds in stages)
    assert sum(seconds or 0 for seconds in stages) <= seen.took_s


def test_a_deadlines_observer_sees_only_its_own_request(model: Model) -> None:
    mine, everybodys = RecordingObserver(), RecordingObserver()
    with service_of(model, everybodys) as service:
        for observer in (mine, None):
            service.predict_inline("", [Instance(input=recent_bars())], CallContext(observer=observer))
    assert len(everybodys.observations) == 2
    assert mine.observations == everybodys.observations[:1]


def test_a_request_is_observed_before_its_response_is_sent(
    service: PredictionService, heard: RecordingObserver
) -> None:
    told: list[int] = []
    held = BlockingInstance()
    answer = service.predict("", held.request, CallContext())
    answer.add_done_callback(lambda _: told.append(len(heard.observations)))
    held.may_go_on.set()
    answer.result(SOON_S)
    assert told == [1]


def test_a_bad_instance_of_several_is_counted_by_its_reason_and_the_request_is_ok(
    service: PredictionService, heard: RecordingObserver
) -> None:
    asked = [Instance(input=recent_bars()), Instance(input=recent_bars().last(2))]
    service.predict("", asked, CallContext()).result(SOON_S)
    (seen,) = heard.observations
    assert (seen.code, seen.refused) == ("OK", ("TOO_FEW_BARS",))


def test_calls_that_are_answered_together_have_the_rows_of_their_batch(
    service: PredictionService, heard: RecordingObserver
) -> None:
    first, two, three = BlockingInstance(), recent_bars("AAPL", "IBM"), recent_bars("AAPL", "IBM", "MSFT")
    answers = [service.predict("", first.request, CallContext())]
    first.begun.wait(SOON_S)
    answers += [service.predict("", [Instance(input=bars)], CallContext()) for bars in (two, three)]
    first.may_go_on.set()
    assert [len(answer.result(SOON_S)) for answer in answers] == [1, 1, 1]
    assert [(seen.rows, seen.batch_rows) for seen in heard.observations] == [(1, 1), (2, 5), (3, 5)]


def test_a_call_that_is_cancelled_in_the_queue_has_no_turn(
    service: PredictionService, heard: RecordingObserver
) -> None:
    first = BlockingInstance()
    answered = service.predict("", first.request, CallContext())
    first.begun.wait(SOON_S)
    service.predict("", [Instance(input=recent_bars())], CallContext()).cancel()
    first.may_go_on.set()
    answered.result(SOON_S)
    cancelled, done = heard.observations
    assert (cancelled.code, cancelled.reason, cancelled.queue_s) == ("CANCELLED", "CANCELLED", None)
    assert done.code == "OK"


def test_a_call_that_expires_while_running_is_observed_with_the_work_done(
    service: PredictionService, heard: RecordingObserver
) -> None:
    held, context = BlockingInstance(), CallContext()
    answer = service.predict("", held.request, context)
    held.begun.wait(SOON_S)
    context.expires_at_s = 0.0  # its deadline passes just now
    held.may_go_on.set()
    assert answer.exception(SOON_S) is not None
    (seen,) = heard.observations
    assert (seen.code, seen.forward_s) == ("DEADLINE_EXCEEDED", None)
    assert seen.queue_s is not None


def test_a_request_that_the_queue_refuses_is_observed(model: Model, heard: RecordingObserver) -> None:
    first = BlockingInstance()
    with service_of(model, heard, ServiceLimits(predictions=QueueLimits(calls=1))) as service:
        answered = service.predict("", first.request, CallContext())
        first.begun.wait(SOON_S)
        with pytest.raises(QueueFullError):
            service.predict("", [Instance(input=recent_bars())], CallContext())
        first.may_go_on.set()
        answered.result(SOON_S)
    refused = heard.observations[0]
    assert (refused.model, refused.code, refused.reason) == ("small", "RESOURCE_EXHAUSTED", "QUEUE_FULL")


def test_explanations_are_observed_once_whatever_their_steps(
    service: PredictionService, heard: RecordingObserver
) -> None:
    instance, targets = Instance(input=recent_bars()), (TargetPoint(1, 0.5),)
    service.explain("", ExplanationQuery(instance=instance, targets=targets), CallContext()).result(SOON_S)
    query = GlobalExplanationQuery(instances=(instance, instance), targets=targets)
    service.explain_global("", query, lambda _: None, CallContext()).result(SOON_S)
    assert [(seen.method, seen.rows, seen.code) for seen in heard.observations] == [
        ("Explain", 1, "OK"),
        ("ExplainGlobal", 2, "OK"),
    ]
    assert all(seen.queue_s is not None and seen.forward_s is None for seen in heard.observations)


def test_a_closed_service_is_observed_and_a_missing_model_is_not(model: Model, heard: RecordingObserver) -> None:
    service = service_of(model, heard)
    with pytest.raises(ModelNotFoundError):
        service.predict("other", [Instance(input=recent_bars())], CallContext())
    assert not heard.observations
    service.close()
    with pytest.raises(UnavailableError):
        service.explain("", ExplanationQuery(instance=Instance(input=recent_bars())), CallContext())
    assert [(seen.method, seen.code) for seen in heard.observations] == [("Explain", "UNAVAILABLE")]


def test_without_an_observer_no_observation_is_created(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("predictor.service.request_queue.Observation", None)  # creating one would raise
    with service_of(model, None) as service:
        (answer,) = service.predict("", [Instance(input=recent_bars())], CallContext()).result(SOON_S)
    assert isinstance(answer, Forecast)
