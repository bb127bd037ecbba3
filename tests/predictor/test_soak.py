"""A server process under mixed load: every call ends as expected, and memory stays constant."""

import asyncio
import time
from pathlib import Path

import grpc
import pytest
from artifacts import recent_bars, small_models
from serving import server_process

from benchmarks.faults.calls import EXPLAIN, INFER, PREDICT, infer_request, predict_request, session_requests
from benchmarks.faults.mix import CallKind, CancelledCall, LateCall, Load, StreamCall, UnaryCall
from benchmarks.faults.served import Vitals
from predictor._pb import prediction_pb2 as pb
from predictor.instance import Instance
from predictor.wire import instances

MODEL = "small"
CALLERS = 4
LASTING_S = 2.5
"""Duration of each half."""
MAX_KEPT = 24 << 20
"""Bytes that the second half may add: a few KiB a call, where a request has ten."""


def parts() -> tuple[CallKind, ...]:
    """The callers' tasks, all with one model."""
    bars = instances.encode(Instance(input=recent_bars()))
    question = pb.ExplainRequest(model=MODEL, instance=bars).SerializeToString()
    asked = predict_request(bars, model=MODEL)
    return (
        UnaryCall("bars", 8, PREDICT, asked),
        UnaryCall("several", 4, PREDICT, predict_request(*[bars] * 8, model=MODEL)),
        UnaryCall("KServe bars", 4, INFER, infer_request(bars, MODEL)),
        StreamCall("sessions", 3, session_requests(bars, MODEL)),
        UnaryCall("explanations", 1, EXPLAIN, question),
        UnaryCall("cut messages", 2, PREDICT, asked[:-3], frozenset({grpc.StatusCode.INVALID_ARGUMENT})),
        LateCall("late calls", 2, PREDICT, asked, timeout_s=0.005),
        CancelledCall("cancelled calls", 2, PREDICT, asked, after_s=0.002),
        CancelledCall("cancelled explanations", 1, EXPLAIN, question, after_s=0.01),
    )


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_under_a_mixed_load_no_call_fails_and_memory_does_not_grow(tmp_path: Path) -> None:
    with (tmp_path / "server.log").open("w") as log, server_process(small_models(tmp_path / "models"), log) as process:
        load = Load(process.target, parts())
        held: list[int] = []
        for _ in range(2):
            end = time.monotonic() + LASTING_S
            asyncio.run(load.run(CALLERS, lambda end=end: time.monotonic() > end))
            held.append(Vitals.of(process.popen.pid).resident)
        assert process.popen.poll() is None
    assert {one.part for one in load.calls} == {part.name for part in parts()}
    assert [one for one in load.calls if one.unexpected is not None] == []
    assert held[1] - held[0] < MAX_KEPT
    assert "incident" not in (tmp_path / "server.log").read_text()
