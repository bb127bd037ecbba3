"""Serialised requests, valid ones and copies with random byte changes."""

from collections.abc import Sequence
from datetime import date
from typing import Any, Final

import numpy as np
from artifacts import recent_bars, small_pipeline
from google.rpc.code_pb2 import Code
from hypothesis import strategies as st

from predictor._pb import prediction_pb2 as pb
from predictor.instance import ExplanationQuery, FeatureWindow, Instance
from predictor.networks import Target
from predictor.wire import attributions, instances

PIPELINE: Final = small_pipeline(Target())
OUR_FAULT: Final = {Code.Value("UNKNOWN"), Code.Value("INTERNAL")}


def predict_request(model: str = "small") -> bytes:
    """A request with bars, with windows, and with the fewest bars that the model needs."""
    bars = recent_bars("AAPL", "IBM")
    sent = [
        Instance(input=bars, request_id="a"),
        Instance(input=flat_window()),
        Instance(input=bars.last(PIPELINE.bars_needed)),
    ]
    return pb.PredictRequest(model=model, instances=map(instances.encode, sent)).SerializeToString()


def flat_window() -> FeatureWindow:
    """Zeros."""
    sizes = PIPELINE.sizes
    return FeatureWindow(
        symbols=("AAPL",),
        observed=np.zeros((1, sizes.encoder_length, sizes.observed), np.float32),
        known=np.zeros((1, sizes.encoder_length + sizes.future_length, sizes.known), np.float32),
        static=np.zeros((1, 0), np.float32),
        mask=np.arange(sizes.encoder_length * sizes.observed).reshape(1, sizes.encoder_length, sizes.observed) > 0,
        location=np.zeros(1),
        scale=np.full(1, 0.02),
        schema_hash=PIPELINE.features.schema_hash,
        anchor_price=np.full(1, 430.47),
        as_of_session=date(2013, 3, 1),
    )


def explain_request(model: str = "small@1") -> bytes:
    """A request to explain every horizon."""
    query = ExplanationQuery(instance=Instance(input=recent_bars("AAPL", "IBM").last(PIPELINE.bars_needed)))
    return attributions.encode_query(query, model).SerializeToString()


REQUESTS: Final = (
    ("Predict", predict_request()),
    ("Predict", predict_request("graph")),
    ("Explain", explain_request()),
    ("Explain", explain_request("graph")),
    ("Explain", explain_request("tft")),
    ("GetModel", pb.GetModelRequest(model="small").SerializeToString()),
)
"""Names of calls, and valid requests to a folder of the models small, graph and tft."""


def stream_request(**action: Any) -> bytes:
    """One request of a stream."""
    return pb.PredictStreamRequest(request_id="changed", timeout_s=100, **action).SerializeToString()


_BARS: Final = instances.encode(Instance(input=recent_bars("AAPL", "IBM").last(PIPELINE.bars_needed)))
STREAM_REQUESTS: Final = (
    ("predict", stream_request(predict=pb.StreamPredict(model="small", instance=_BARS))),
    ("open", stream_request(open=pb.OpenSession(session_id="s", model="small", instance=_BARS))),
    ("push", stream_request(push=pb.PushBars(session_id="s", bars=_BARS.bars))),
    ("close", stream_request(close=pb.CloseSession(session_id="s"))),
    ("cancel", stream_request(cancel=pb.CancelRequest(request_id="before"))),
)
"""Names of actions, and valid requests to a server of the model small."""


def ids(requests: Sequence[tuple[str, bytes]]) -> list[str]:
    """Test ids by position: map entries are serialised in varying order, so bytes cannot be ids."""
    return [f"{name}-{place}" for place, (name, _) in enumerate(requests)]


@st.composite
def mutated(draw: st.DrawFn, requests: Sequence[tuple[str, bytes]] = REQUESTS) -> tuple[str, bytes]:
    """A method and its request with random byte changes, often near the start, where lengths are."""
    method, unchanged = draw(st.sampled_from(requests))
    body = bytearray(unchanged)
    for _ in range(draw(st.integers(1, 4))):
        reach = draw(st.sampled_from((40, 2000, len(body))))
        place = draw(st.integers(0, max(0, min(reach, len(body)) - 1)))
        change = draw(st.sampled_from(("set", "set", "set", "remove", "insert", "cut")))
        if change == "set":
            body[place : place + 1] = bytes([draw(st.integers(0, 255))])
        elif change == "remove":
            del body[place : place + draw(st.integers(1, 9))]
        elif change == "insert":
            body[place:place] = draw(st.binary(min_size=1, max_size=9))
        else:
            del body[place:]
    return method, bytes(body)
