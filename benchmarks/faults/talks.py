"""Requests of a stream: forecasts, sessions, and pushes of a bar."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from benchmarks.faults.models import NAME
from predictor._pb import prediction_pb2 as pb

NOBODY: Final = "nobody"
"""A session that was never opened."""
_COLUMNS: Final = ("open", "high", "low", "close", "volume", "adj_close", "split_ratio", "cash_dividend")
_FLOAT64: Final = 8


def predict(request_id: str, instance: pb.Instance, model: str = NAME) -> bytes:
    """A forecast."""
    asked = pb.StreamPredict(model=model, instance=instance)
    return pb.PredictStreamRequest(request_id=request_id, predict=asked).SerializeToString()


def opening(request_id: str, session_id: str, instance: pb.Instance, model: str = NAME) -> bytes:
    """A session with this history."""
    opened = pb.OpenSession(session_id=session_id, model=model, instance=instance)
    return pb.PredictStreamRequest(request_id=request_id, open=opened).SerializeToString()


def pushing(request_id: str, session_id: str, instance: pb.Instance) -> bytes:
    """The last bars of the history once more, which take the place of those that are there: a forecast answers it."""
    pushed = pb.PushBars(session_id=session_id, bars=last_bars(instance.bars), flush=True)
    return pb.PredictStreamRequest(request_id=request_id, push=pushed).SerializeToString()


def session(instance: pb.Instance, model: str = NAME) -> Sequence[bytes]:
    """One from its opening to its end, and a forecast beside it."""
    closed = pb.PredictStreamRequest(request_id="d", close=pb.CloseSession(session_id="s")).SerializeToString()
    return [opening("a", "s", instance, model), predict("b", instance, model), pushing("c", "s", instance), closed]


def asking_nobody(request_id: str) -> bytes:
    """What is refused at once, after all that was sent before it was read."""
    closed = pb.CloseSession(session_id=NOBODY)
    return pb.PredictStreamRequest(request_id=request_id, close=closed).SerializeToString()


def last_bars(panel: pb.BarPanel) -> pb.BarPanel:
    """Those of the last session."""
    symbols, sessions = len(panel.symbols), len(panel.session_yyyymmdd)
    last = pb.BarPanel(symbols=panel.symbols, session_yyyymmdd=panel.session_yyyymmdd[-1:])
    for name in filter(partial(getattr, panel), _COLUMNS):
        values = memoryview(getattr(panel, name)).cast("B")
        rows = (values[_FLOAT64 * sessions * row :][: _FLOAT64 * sessions] for row in range(symbols))
        setattr(last, name, b"".join(bytes(row[-_FLOAT64:]) for row in rows))
    return last
