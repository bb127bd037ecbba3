"""Model worker: batching queued requests, isolating failures, and dropping cancelled requests."""

import asyncio
import gc
import logging
import math
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Any, final

import numpy as np
import pytest
import torch
from artifacts import recent_bars, small_artifact, small_model

from predictor._pb import prediction_pb2 as pb
from predictor.call_context import CallContext, Deadline
from predictor.calls import PredictionCalls
from predictor.catalog import ModelInfo
from predictor.errors import (
    CallCancelledError,
    DeadlineExceededError,
    InternalError,
    MalformedRequestError,
    QuantraError,
    TooFewBarsError,
    UnavailableError,
    VersionNotFoundError,
)
from predictor.forecast import Attribution, Forecast, Outcome, TargetPoint
from predictor.instance import ExplanationQuery, Instance, InstanceOrError
from predictor.model import Model, ModelIdentity, Predictor, PreparedBatch
from predictor.registry import CHAMPION, ModelVersions, Registry
from predictor.server.loop_bridge import InlineBatcher
from predictor.service import LazyRequest, ModelWorker, PredictionService
from predictor.wire import instances

SOON_S = 30


@final
class WatchedModel:
    """A real model that records its batcher, and that a test can pause or break."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.identity: ModelIdentity = model.identity
        self.batcher: list[int] = []
        self.forwards: list[int] = []
        self.released = threading.Event()
        self.released.set()
        self.begun = threading.Event()
        self.before: Callable[[], object] = lambda: None
        self.meanwhile: Callable[[], object] = lambda: None
        self.breaks_at: Instance | None = None
        self.breaks_at_symbol = ""

    def prepare_batch(
        self, instances: Sequence[InstanceOrError], now: datetime, deadline: Deadline
    ) -> PreparedBatch[Any]:
        self.batcher.append(len(instances))
        self.begun.set()
        self.released.wait(SOON_S)
        self.before()
        if self.breaks_at is not None and any(one is self.breaks_at for one in instances):
            raise ZeroDivisionError
        if any(self.breaks_at_symbol in one.input.symbols for one in instances if isinstance(one, Instance)):
            raise ZeroDivisionError
        batch = self._model.prepare_batch(instances, now, deadline)
        self.meanwhile()
        return _CountedBatch(batch, self.forwards)

    def predict(self, instances: Sequence[InstanceOrError], now: datetime, deadline: Deadline) -> tuple[Outcome, ...]:
        return self._model.predict(instances, now, deadline)

    def explain(self, query: ExplanationQuery, now: datetime, deadline: Deadline) -> tuple[Attribution, ...]:
        return self._model.explain(query, now, deadline)

    def explain_cost(self, query: ExplanationQuery) -> int:
        return self._model.explain_cost(query)

    def default_targets(self) -> tuple[TargetPoint, ...]:
        return self._model.default_targets()

    def info(self, aliases: tuple[str, ...], *, is_default: bool) -> ModelInfo:
        return self._model.info(aliases, is_default=is_default)


@final
class _CountedBatch(PreparedBatch[Any]):
    def __init__(self, batch: PreparedBatch[Any], forwards: list[int]) -> None:
        self._batch = batch
        self._forwards = forwards

    def outcomes(self, indices: Sequence[int], deadline: Deadline) -> tuple[Outcome, ...]:
        self._forwards.append(len(indices))
        return self._batch.outcomes(indices, deadline)


def decode_nothing() -> Sequence[InstanceOrError]:
    raise MalformedRequestError("no instance can be told from another")


def registry_of(*models: Predictor) -> Registry:
    versions = {one.identity.version: one for one in models}
    return Registry(
        models={models[0].identity.name: ModelVersions(versions=versions, aliases={CHAMPION: max(versions)})},
        problems=(),
    )


@pytest.fixture(scope="module")
def model() -> Model:
    return small_model(small_artifact())


@pytest.fixture
def watched_model(model: Model) -> WatchedModel:
    return WatchedModel(model)


def occupy_worker(service: PredictionService, watched: WatchedModel) -> Future[tuple[Outcome, ...]]:
    """A call that occupies the model's thread until `released` is set, so that others queue up."""
    watched.released.clear()
    first = service.predict("", [Instance(input=recent_bars("AAPL"))], CallContext())
    assert watched.begun.wait(SOON_S)
    return first


def kinds(answer: Future[Any]) -> list[type[object]]:
    return [type(one) for one in answer.result(SOON_S)]


def test_all_that_piled_up_is_answered_together_and_each_call_gets_its_own(watched_model: WatchedModel) -> None:
    panels = [("AAPL",), ("IBM", "MSFT"), ("GOOG",)]
    with PredictionService(registry_of(watched_model)) as service:
        occupy_worker(service, watched_model)
        answers = [service.predict("", [Instance(input=recent_bars(*panel))] * 2, CallContext()) for panel in panels]
        watched_model.released.set()
        for panel, answer in zip(panels, answers, strict=True):
            assert [one.symbols for one in answer.result(SOON_S) if isinstance(one, Forecast)] == [panel] * 2
    assert watched_model.batcher == [1, 6]


def test_a_batch_has_no_more_rows_than_a_forward_but_for_a_larger_call(watched_model: WatchedModel) -> None:
    pair, single = Instance(input=recent_bars("IBM", "MSFT")), Instance(input=recent_bars("AAPL"))
    with PredictionService(registry_of(watched_model), max_rows=3) as service:
        occupy_worker(service, watched_model)
        asked = ([pair], [single], [single, pair], [single] * 5)
        answers = [service.predict("", instances, CallContext()) for instances in asked]
        watched_model.released.set()
        assert all(set(kinds(answer)) == {Forecast} for answer in answers)
    assert watched_model.batcher == [1, 2, 2, 5]


def test_requests_that_wait_for_the_calling_thread_are_answered_there_together(watched_model: WatchedModel) -> None:
    names, workers, good = threads_of(watched_model), list[ModelWorker](), Instance(input=recent_bars("AAPL"))
    with PredictionService(registry_of(watched_model), schedule=workers.append) as service:
        answers = [service.predict("", [good], CallContext()) for _ in range(3)]
        assert not any(answer.done() for answer in answers)
        workers[0].run_waiting(math.inf)
        assert all(answer.done() for answer in answers)
    assert watched_model.batcher == [3]
    assert names == [threading.current_thread().name]


def test_the_calling_thread_answers_only_batches_known_to_be_quick(watched_model: WatchedModel) -> None:
    names, workers, good = threads_of(watched_model), list[ModelWorker](), Instance(input=recent_bars("AAPL"))
    with PredictionService(registry_of(watched_model), schedule=workers.append) as service:

        def thread_of(inline_s: float) -> str:
            answer = service.predict("", [good], CallContext())
            workers[-1].run_waiting(inline_s)
            answer.result(SOON_S)
            return names[-1]

        assert thread_of(60.0) == "predict-small"  # not measured yet
        assert thread_of(math.inf) == threading.current_thread().name
        assert thread_of(60.0) == threading.current_thread().name
        assert thread_of(1e-9) == "predict-small"


def test_requests_of_one_turn_of_an_event_loop_are_one_batch(watched_model: WatchedModel) -> None:
    good = [Instance(input=recent_bars("AAPL"))]

    async def ask() -> None:
        with PredictionService(registry_of(watched_model), schedule=InlineBatcher().schedule) as service:
            for count in (1, 3, 3, 2):
                answers = [service.predict("", good, CallContext()) for _ in range(count)]
                assert all(len(done) == 1 for done in await asyncio.gather(*map(asyncio.wrap_future, answers)))

    asyncio.run(ask())
    assert watched_model.batcher == [1, 3, 3, 2]


def test_requests_of_a_turn_that_does_not_end_are_answered_by_the_thread(watched_model: WatchedModel) -> None:
    names, good = threads_of(watched_model), [Instance(input=recent_bars("AAPL"))]

    async def ask() -> None:
        batcher = InlineBatcher()
        with PredictionService(registry_of(watched_model), schedule=batcher.schedule) as service:
            answer = service.predict("", good, CallContext())
            batcher.finish()
        assert answer.done()

    asyncio.run(ask())
    assert names == ["predict-small"]


def test_a_closed_service_leaves_no_thread(watched_model: WatchedModel) -> None:
    before = threading.active_count()
    with PredictionService(registry_of(watched_model)) as service:
        service.predict("", [Instance(input=recent_bars("AAPL"))], CallContext()).result(SOON_S)
    assert threading.active_count() == before


def test_a_lone_call_waits_for_no_other(watched_model: WatchedModel) -> None:
    with PredictionService(registry_of(watched_model)) as service:
        for _ in range(3):
            assert kinds(service.predict("", [Instance(input=recent_bars("AAPL"))], CallContext())) == [Forecast]
    assert watched_model.batcher == [1, 1, 1]


def test_a_bad_instance_or_call_among_those_answered_together_fails_alone(watched_model: WatchedModel) -> None:
    good, bad = Instance(input=recent_bars("AAPL")), Instance(input=recent_bars("AAPL").last(3))
    with PredictionService(registry_of(watched_model)) as service:
        occupy_worker(service, watched_model)
        first = service.predict("", [good, bad, MalformedRequestError("x"), good], CallContext())
        unreadable = service.predict("", LazyRequest(decode_nothing, 1, 1), CallContext())
        last = service.predict("", [good], CallContext())
        watched_model.released.set()
        assert kinds(first) == [Forecast, TooFewBarsError, MalformedRequestError, Forecast]
        assert isinstance(unreadable.exception(SOON_S), MalformedRequestError)
        assert kinds(last) == [Forecast]


def test_a_bug_that_one_call_meets_ends_no_other_that_was_answered_with_it(watched_model: WatchedModel) -> None:
    good, cursed = Instance(input=recent_bars("AAPL")), Instance(input=recent_bars("IBM"))
    watched_model.breaks_at = cursed
    with PredictionService(registry_of(watched_model)) as service:
        occupy_worker(service, watched_model)
        answers = [service.predict("", [one], CallContext()) for one in (good, cursed, good)]
        watched_model.released.set()
        assert kinds(answers[0]) == kinds(answers[2]) == [Forecast]
        assert isinstance(answers[1].exception(SOON_S), ZeroDivisionError)


def test_requests_answered_with_one_that_meets_a_bug_are_read_once_and_answered_whole(
    watched_model: WatchedModel,
) -> None:
    bodies = [
        pb.PredictRequest(
            instances=[instances.encode(Instance(input=recent_bars(symbol), request_id=symbol))]
        ).SerializeToString()
        for symbol in ("AAPL", "IBM", "MSFT")
    ]
    watched_model.breaks_at_symbol = "IBM"
    with PredictionService(registry_of(watched_model)) as service:
        calls = PredictionCalls(service)
        occupy_worker(service, watched_model)
        answers = [calls.handle("Predict", body, CallContext()) for body in bodies]
        watched_model.released.set()
        results = [pb.PredictResponse.FromString(answers[k].result(SOON_S)).results[0] for k in (0, 2)]
        assert [(one.request_id, list(one.forecast.symbols)) for one in results] == [
            ("AAPL", ["AAPL"]),
            ("MSFT", ["MSFT"]),
        ]
        assert isinstance(answers[1].exception(SOON_S), InternalError)
        calls.close()


def test_a_bug_in_reading_one_call_ends_no_other(watched_model: WatchedModel) -> None:
    good = [Instance(input=recent_bars("AAPL"))]

    def break_down() -> Sequence[InstanceOrError]:
        raise ZeroDivisionError

    with PredictionService(registry_of(watched_model)) as service:
        occupy_worker(service, watched_model)
        requests = (good, LazyRequest(break_down, 1, 1), good)
        first, broken, last = (service.predict("", request, CallContext()) for request in requests)
        watched_model.released.set()
        assert kinds(first) == kinds(last) == [Forecast]
        assert isinstance(broken.exception(SOON_S), ZeroDivisionError)
        assert service.predict("", good, CallContext()).result(SOON_S)


def test_a_forecast_among_many_is_the_one_asked_alone(watched_model: WatchedModel) -> None:
    asked = [Instance(input=recent_bars(symbol)) for symbol in ("AAPL", "IBM", "MSFT", "GOOG")]
    with PredictionService(registry_of(watched_model)) as service:
        alone = [service.predict("", [one], CallContext()).result(SOON_S)[0] for one in asked]
        occupy_worker(service, watched_model)
        together = [service.predict("", [one], CallContext()) for one in asked]
        watched_model.released.set()
        for one, answer in zip(alone, together, strict=True):
            other = answer.result(SOON_S)[0]
            assert isinstance(one, Forecast) and isinstance(other, Forecast)  # noqa: PT018
            np.testing.assert_allclose(other.values, one.values, rtol=0, atol=1e-6)
            assert other.forecast_id == one.forecast_id


def test_cancelled_calls_run_no_network(watched_model: WatchedModel) -> None:
    """They are cancelled in the queue, or while their batch is prepared."""
    good = Instance(input=recent_bars("AAPL"))
    with PredictionService(registry_of(watched_model)) as service:
        first = occupy_worker(service, watched_model)
        gone = CallContext()
        answers = [service.predict("", [good], CallContext.with_timeout(0)) for _ in range(5)]
        answers += [service.predict("", [good], gone)]
        wanted = service.predict("", [good], CallContext())
        watched_model.meanwhile = lambda: gone.cancel() if len(watched_model.batcher) == 2 else None
        watched_model.released.set()
        assert kinds(first) == kinds(wanted) == [Forecast]
        assert all(isinstance(answer.exception(SOON_S), QuantraError) for answer in answers)
    assert watched_model.batcher == [1, 2]
    assert watched_model.forwards == [1, 1]


def test_a_fully_cancelled_batch_ends_between_two_steps(watched_model: WatchedModel) -> None:
    good, deadlines = Instance(input=recent_bars("AAPL")), [CallContext(), CallContext()]
    with PredictionService(registry_of(watched_model)) as service:
        occupy_worker(service, watched_model)
        answers = [service.predict("", [good] * 3, deadline) for deadline in deadlines]
        watched_model.meanwhile = lambda: len(watched_model.batcher) == 2 and [one.cancel() for one in deadlines]
        watched_model.released.set()
        assert all(isinstance(answer.exception(SOON_S), QuantraError) for answer in answers)
    assert watched_model.forwards in ([1], [1, 0])  # the batch itself may end earlier


def test_each_call_of_an_abandoned_batch_gets_its_own_reason(watched_model: WatchedModel) -> None:
    good, gone, late = Instance(input=recent_bars("AAPL")), CallContext(), CallContext.with_timeout(0.3)

    def lose_both() -> None:
        if len(watched_model.batcher) == 2:
            gone.cancel()
            while not late.is_over(time.monotonic()):
                pass

    with PredictionService(registry_of(watched_model)) as service:
        occupy_worker(service, watched_model)
        answers = [service.predict("", [good], deadline) for deadline in (gone, late)]
        watched_model.before = lose_both
        watched_model.released.set()
        errors = [answer.exception(SOON_S) for answer in answers]
    assert [type(error) for error in errors] == [CallCancelledError, DeadlineExceededError]


def test_where_the_time_of_a_batch_went_is_in_the_log(
    watched_model: WatchedModel, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "predictor.service"), PredictionService(registry_of(watched_model)) as service:
        service.predict("", [Instance(input=recent_bars("AAPL"))] * 2, CallContext()).result(SOON_S)
    (line,) = [record.getMessage() for record in caplog.records if "calls" in record.getMessage()]
    assert line.startswith("small: 1 calls, 2 instances, queue ")
    assert [part.split()[0] for part in line.split(", ")[2:]] == ["queue", "decode", "prepare", "forward", "encode"]


# --- replaced models


def swap(service: PredictionService, registry: Registry) -> None:
    service.served._serve(registry)


def test_a_model_that_was_replaced_answers_what_waits_for_it_and_its_successor_all_else(model: Model) -> None:
    old, new = WatchedModel(model), WatchedModel(model)
    good = [Instance(input=recent_bars("AAPL"))]
    with PredictionService(registry_of(old)) as service:
        first = occupy_worker(service, old)
        waiting = [service.predict("", good, CallContext()) for _ in range(3)]
        swap(service, registry_of(new))
        assert kinds(service.predict("", good, CallContext())) == [Forecast]
        assert not first.done()
        old.released.set()
        assert all(kinds(answer) == [Forecast] for answer in (first, *waiting))
    assert (sum(old.batcher), sum(new.batcher)) == (4, 1)


def test_a_model_that_stays_keeps_its_worker(watched_model: WatchedModel) -> None:
    with PredictionService(registry_of(watched_model)) as service:
        occupy_worker(service, watched_model)
        answer = service.predict("", [Instance(input=recent_bars("AAPL"))], CallContext())
        other = WatchedModel(small_model(small_artifact(), "other"))
        both = {**registry_of(watched_model).models, **registry_of(other).models}
        swap(service, Registry(models=both, problems=()))
        last = service.predict("small", [Instance(input=recent_bars("IBM"))], CallContext())
        watched_model.released.set()
        assert kinds(answer) == kinds(last) == [Forecast]
    assert watched_model.batcher == [1, 2]


def test_a_model_that_was_replaced_is_freed_with_its_last_call(model: Model) -> None:
    old = WatchedModel(model)
    with PredictionService(registry_of(old)) as service:
        occupy_worker(service, old)
        answer = service.predict("", [Instance(input=recent_bars("AAPL"))], CallContext())
        swap(service, registry_of(WatchedModel(model)))
        old.released.set()
        answer.result(SOON_S)
        freed = threading.Event()
        weakref.finalize(old, freed.set)
        del old, answer
        for _ in range(1000):
            gc.collect()
            if freed.wait(0.01):
                break
        assert freed.is_set()


def test_a_model_that_is_served_no_more_is_named(watched_model: WatchedModel) -> None:
    second = WatchedModel(small_model(small_artifact(), "small"))
    second.identity = ModelIdentity(name="small", version=2, weights_hash="0" * 64)
    with PredictionService(registry_of(watched_model, second)) as service:
        assert kinds(service.predict("small@2", [Instance(input=recent_bars("AAPL"))], CallContext())) == [Forecast]
        swap(service, registry_of(watched_model))
        with pytest.raises(VersionNotFoundError, match=r"it has versions \[1\]"):
            service.predict("small@2", [], CallContext())


# --- synchronous callers


def threads_of(watched: WatchedModel) -> list[str]:
    """Record the name of the thread of each batch."""
    names: list[str] = []
    watched.meanwhile = lambda: names.append(threading.current_thread().name)
    return names


def test_a_lone_caller_is_answered_in_its_own_thread_as_in_the_models(watched_model: WatchedModel) -> None:
    asked, names = (
        [Instance(input=recent_bars("AAPL")), Instance(input=recent_bars("IBM").last(5))],
        threads_of(watched_model),
    )
    with PredictionService(registry_of(watched_model)) as service:
        here, short = service.predict_inline("", asked, CallContext())
        there, _ = service.predict("", asked, CallContext()).result(SOON_S)
    assert service.prediction_load == (
        0,
        0,
        0,
    )  # after the end of the thread, which releases requests after it answers them
    assert names == [threading.current_thread().name, "predict-small"]
    assert isinstance(short, TooFewBarsError)
    assert isinstance(here, Forecast)
    assert isinstance(there, Forecast)
    assert here.values.tobytes() == there.values.tobytes()


def test_a_second_caller_waits_for_the_models_thread(watched_model: WatchedModel) -> None:
    asked, names = [Instance(input=recent_bars("AAPL"))], list[str]()

    def ask_meanwhile() -> None:
        names.append(threading.current_thread().name)
        if len(names) == 1:
            service.predict_inline("", asked, CallContext())

    watched_model.meanwhile = ask_meanwhile
    with PredictionService(registry_of(watched_model)) as service:
        service.predict_inline("", asked, CallContext())
    assert names == [threading.current_thread().name, "predict-small"]


def test_a_caller_with_settings_of_torch_for_its_own_thread_waits_for_the_models_thread(
    watched_model: WatchedModel,
) -> None:
    asked, names = [Instance(input=recent_bars("AAPL"))], threads_of(watched_model)
    with PredictionService(registry_of(watched_model)) as service:
        (plain,) = service.predict_inline("", asked, CallContext())
        with torch.autocast("cpu"):
            (under_autocast,) = service.predict_inline("", asked, CallContext())
        with torch.device("meta"):
            service.predict_inline("", asked, CallContext())
    assert names == [threading.current_thread().name, "predict-small", "predict-small"]
    assert isinstance(plain, Forecast)
    assert isinstance(under_autocast, Forecast)
    assert plain.values.tobytes() == under_autocast.values.tobytes()


def test_what_a_caller_does_about_floating_point_errors_does_not_reach_the_model(watched_model: WatchedModel) -> None:
    told: list[str] = []
    watched_model.meanwhile = lambda: told.append(np.geterr()["divide"])
    with PredictionService(registry_of(watched_model)) as service, np.errstate(all="raise"):
        service.predict_inline("", [Instance(input=recent_bars("AAPL"))], CallContext())
    assert told == ["warn"]


def test_a_waiting_caller_gets_the_error_and_leaves_nothing_behind(watched_model: WatchedModel) -> None:
    watched_model.breaks_at = Instance(input=recent_bars("AAPL"))
    service = PredictionService(registry_of(watched_model))
    with pytest.raises(ZeroDivisionError):
        service.predict_inline("", [watched_model.breaks_at], CallContext())
    with pytest.raises(DeadlineExceededError):
        service.predict_inline("", [watched_model.breaks_at], CallContext.with_timeout(0))
    with pytest.raises(VersionNotFoundError):
        service.predict_inline("small@9", [watched_model.breaks_at], CallContext())
    assert service.prediction_load == (0, 0, 0)
    service.close()
    with pytest.raises(UnavailableError):
        service.predict_inline("", [watched_model.breaks_at], CallContext())


# --- shutdown


@pytest.mark.slow
def test_a_process_that_forgets_to_close_exits_during_its_calls() -> None:
    program = """
import sys; sys.path[:0] = sys.argv[1:]
from artifacts import recent_bars, small_artifact, small_model
from predictor.call_context import CallContext
from predictor.instance import Instance
from predictor.registry import CHAMPION, ModelVersions, Registry
from predictor.server.loop_bridge import InlineBatcher
from predictor.service import ModelWorker, PredictionService
model = small_model(small_artifact())
service = PredictionService(Registry(models={"small": ModelVersions.of(model)}, problems=()))
answers = [service.predict("", [Instance(input=recent_bars("AAPL"))], CallContext()) for _ in range(100)]
answers[0].add_done_callback(lambda _: print("answered", flush=True))
"""
    folders = [path for path in sys.path if path.endswith(("tests", "predictor"))]
    run = subprocess.run([sys.executable, "-c", program, *folders], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "answered\n", "")


def test_a_service_that_is_let_go_ends_its_threads(model: Model) -> None:
    service = PredictionService(registry_of(model))
    service.predict("", [Instance(input=recent_bars("AAPL"))], CallContext()).result(SOON_S)
    (thread,) = [one for one in threading.enumerate() if one.name == "predict-small"]
    del service
    gc.collect()
    thread.join(SOON_S)
    assert not thread.is_alive()


def test_an_expired_deadline_is_raised_by_the_future(watched_model: WatchedModel) -> None:
    with PredictionService(registry_of(watched_model)) as service:
        late = service.predict("", [Instance(input=recent_bars("AAPL"))], CallContext.with_timeout(0))
        assert isinstance(late.exception(SOON_S), DeadlineExceededError)
    assert watched_model.batcher == []
