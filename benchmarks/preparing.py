"""Cost of a forecast besides the network: many instances prepared together, a single one, and a wide panel.

The shipped code trains the shipped LSTM for one epoch on AAPL's real bars, in this process with one torch thread.
Panels of many symbols are AAPL's bars at scaled prices. Medians of interleaved runs.
"""

import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Final, final

import torch

from benchmarks.calling.subject import Subject, panel_of, subject_in, window_of
from benchmarks.report import Row, at_most, interleaved_medians, parse_arguments, publish, shown
from predictor.bars import BarPanel
from predictor.call_context import NEVER, CallContext
from predictor.calls import PredictionCalls
from predictor.catalog import EngineName
from predictor.forecaster import Forecaster
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.inference import use_threads
from predictor.instance import Instance, InstanceOrError
from predictor.model import Model, PreparedInstance
from predictor.registry import Runtime, load_model
from predictor.service import LazyRequest, PredictionRequest, PredictionService
from predictor.wire import instances

MANY, WIDE = 64, 500
ENGINES: Final[tuple[EngineName, ...]] = ("eager", "onnxruntime")
TOGETHER_REACH: Final = 1.6
LONE_REACH: Final = 2.5
WIDE_REACH_MS: Final = 60.0


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BenchmarkedModel:
    """A model, a forecaster with the same model, and as many bars of AAPL as a forecast reads."""

    model: Model
    fast: Model
    """The same with the engine onnxruntime."""
    forecaster: Forecaster
    bars: BarPanel

    def forward(self, prepared: PreparedInstance) -> None:
        """Run only the network, with the server's maximum number of rows."""
        self.model.engine.compute_units(prepared.inputs)


@contextmanager
def opened(subject: Subject) -> Generator[BenchmarkedModel]:
    """Load the trained model."""
    path = subject.models / "stock" / "1"
    device = torch.device("cpu")
    model, fast = (load_model(path, ("stock", 1), Runtime(device, 256, engine)) for engine in ENGINES)
    assert isinstance(model, Model)
    assert isinstance(fast, Model)
    with Forecaster.load(path, "cpu") as forecaster:
        yield BenchmarkedModel(model=model, fast=fast, forecaster=forecaster, bars=subject.bars)


def together_rows(work: BenchmarkedModel, rounds: int, *, judged: bool) -> list[Row]:
    """Prepare instances of one symbol each against one panel of all symbols."""
    panel = panel_of(work.bars, MANY)
    whole, each = Instance(input=panel), [Instance(input=panel.select([symbol])) for symbol in panel.symbols]
    model = work.model
    medians = interleaved_medians(
        {
            "each": lambda: model.prepare_batch(each, AFTER_ALL_SESSIONS, NEVER),
            "whole": lambda: model.prepare_batch([whole], AFTER_ALL_SESSIONS, NEVER),
        },
        rounds=rounds,
        calls=1,
        clock=time.thread_time,
    )
    detail = f"CPU time of preparation: {1e3 * medians['each']:.3g} and {1e3 * medians['whole']:.3g} ms"
    name = f"{MANY} instances of one symbol / a panel of {MANY}"
    return [at_most(name, medians["each"] / medians["whole"], TOGETHER_REACH, detail=detail, judged=judged)]


def lone_rows(work: BenchmarkedModel, rounds: int, *, judged: bool) -> list[Row]:
    """Forecast from bars of one symbol in this process against the bare network."""
    model, bars = work.model, work.bars
    instance = Instance(input=bars)
    prepared = model.prepare(instance, AFTER_ALL_SESSIONS)
    medians = interleaved_medians(
        {
            "door": lambda: work.forecaster.predict(bars),
            "model": lambda: model.predict([instance], AFTER_ALL_SESSIONS, NEVER),
            "forward": lambda: work.forward(prepared),
        },
        rounds=rounds,
        calls=5,
        clock=time.process_time,
    )
    shares = {name: medians[name] / medians["forward"] for name in ("door", "model")}
    detail = f"CPU time of all threads; the network: {1e6 * medians['forward']:.3g} us"
    name = "bars of one symbol to forecast / network"
    return [
        at_most(name, shares["door"], LONE_REACH, detail=detail, judged=judged),
        shown(f"{name}, without the service's thread", shares["model"], detail=detail),
    ]


def engine_rows(work: BenchmarkedModel, rounds: int) -> list[Row]:
    """Forecast batches of one-symbol instances from windows with each engine."""
    pipeline, rows = work.model.pipeline, list[Row]()
    instance = Instance(input=window_of(work.bars, pipeline))
    for count in (1, 8, 32):
        batch = [instance] * count
        medians = interleaved_medians(
            {
                "eager": lambda batch=batch: work.model.predict(batch, AFTER_ALL_SESSIONS, NEVER),
                "onnxruntime": lambda batch=batch: work.fast.predict(batch, AFTER_ALL_SESSIONS, NEVER),
            },
            rounds=rounds,
            calls=5,
            clock=time.process_time,
        )
        detail = (
            f"CPU time a call: {1e6 * medians['onnxruntime'] / count:.0f} and {1e6 * medians['eager'] / count:.0f} us"
        )
        name = f"{count} windows to forecast in this process, onnxruntime / eager"
        rows.append(shown(name, medians["onnxruntime"] / medians["eager"], detail=detail))
    return rows


@final
class Gate:
    """A request that keeps a model's thread busy until it is opened, so that later requests share a batch."""

    def __init__(self) -> None:
        self.begun, self.opened = Event(), Event()
        self.request: PredictionRequest = LazyRequest(self._decode, 0)

    def _decode(self) -> Sequence[InstanceOrError]:
        """Wait; there is nothing to forecast."""
        self.begun.set()
        self.opened.wait()
        return ()


def call_together(service: PredictionService, calls: PredictionCalls, body: bytes, count: int) -> None:
    """Wait for the responses of calls that share one batch, or of one call, which is computed in this thread."""
    gate = Gate()
    if count > 1:
        service.predict("", gate.request, NEVER)
        gate.begun.wait()
    answers = [calls.handle("Predict", body, CallContext.with_timeout(60), inline=count == 1) for _ in range(count)]
    gate.opened.set()
    for answer in answers:
        answer.result()


def call_rows(subject: Subject, engine: EngineName, rounds: int) -> list[Row]:
    """Call with encoded requests, from bytes to bytes, without a server."""
    bodies = {"windows": subject.asked_with_windows(), "bars": subject.asked_with_bars()}
    cases = [("windows", 1), ("windows", 8), ("windows", 32), ("bars", 1), ("bars", 32)]
    with PredictionService.open(subject.models, device="cpu", engine=engine) as service:
        calls = PredictionCalls(service)
        medians = interleaved_medians(
            {
                f"{name}, {count} together": partial(call_together, service, calls, bodies[name], count)
                for name, count in cases
            },
            rounds=rounds,
            calls=3,
            clock=time.process_time,
        )
    return [
        shown(f"a call with {name}, {engine}, us", 1e6 * seconds / count, detail="CPU time of all threads")
        for (name, seconds), (_, count) in zip(medians.items(), cases, strict=True)
    ]


def wide_rows(work: BenchmarkedModel, rounds: int, *, judged: bool) -> list[Row]:
    """Time from the bytes of a wide panel to its forecasts, less the network."""
    model = work.model
    message = instances.encode(Instance(input=panel_of(work.bars, WIDE)))
    prepared = model.prepare(instances.decode(message), AFTER_ALL_SESSIONS)
    medians = interleaved_medians(
        {
            "whole": lambda: model.predict([instances.decode(message)], AFTER_ALL_SESSIONS, NEVER),
            "forward": lambda: work.forward(prepared),
        },
        rounds=rounds,
        calls=1,
        clock=time.thread_time,
    )
    beyond_ms = 1e3 * (medians["whole"] - medians["forward"])
    detail = f"CPU time; total {1e3 * medians['whole']:.3g} ms, the network {1e3 * medians['forward']:.3g} ms"
    return [at_most(f"{WIDE} symbols, beyond the network, ms", beyond_ms, WIDE_REACH_MS, detail=detail, judged=judged)]


def main() -> int:
    arguments = parse_arguments("Cost of a forecast besides the network.")
    rounds, judged = (10, False) if arguments.quick else (100, True)
    use_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        subject = subject_in(Path(folder))
        rows = [row for engine in ENGINES for row in call_rows(subject, engine, rounds)]
        with opened(subject) as work:
            rows += together_rows(work, rounds, judged=judged)
            rows += lone_rows(work, rounds, judged=judged)
            rows += engine_rows(work, rounds)
            rows += wide_rows(work, rounds, judged=judged)
    return publish(rows, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
