"""Requests with bytes changed at random: each ends in an answer or in an error of the caller's."""

from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from artifacts import recent_bars, save_small_artifact, small_models, small_pipeline
from google.rpc.code_pb2 import Code
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import serving

from predictor._pb import prediction_pb2 as pb
from predictor.instance import FeatureWindow, Instance, Query
from predictor.networks import Target
from predictor.service import PredictionService
from predictor.wire import attributions, instances

PIPELINE = small_pipeline(Target())
OK = Code.Value("OK")
OUR_FAULT = {Code.Value("UNKNOWN"), Code.Value("INTERNAL")}


def predict_request(model: str = "small") -> bytes:
    bars = recent_bars("AAPL", "IBM")
    sent = [
        Instance(input=bars, request_id="a"),
        Instance(input=flat_window()),
        Instance(input=bars.last(PIPELINE.bars_needed)),
    ]
    return pb.PredictRequest(model=model, instances=map(instances.encode, sent)).SerializeToString()


def flat_window() -> FeatureWindow:
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
        as_of_session=20130301,
    )


def explain_request(model: str = "small@1") -> bytes:
    query = Query(instance=Instance(input=recent_bars("AAPL", "IBM").last(PIPELINE.bars_needed)))
    return attributions.encode_query(query, model).SerializeToString()


REQUESTS = (
    ("Predict", predict_request()),
    ("Predict", predict_request("graph")),
    ("Explain", explain_request()),
    ("Explain", explain_request("graph")),
    ("Explain", explain_request("tft")),
    ("GetModel", pb.GetModelRequest(model="small").SerializeToString()),
)


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[grpc.Channel]:
    models = small_models(tmp_path_factory.mktemp("models"))
    for kind in ("graph", "tft"):
        save_small_artifact(models / kind / "1", kind)
    with (
        PredictionService.open(models) as service,
        serving(service) as served,
        grpc.insecure_channel(served.target) as open_channel,
    ):
        yield open_channel


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, bytes]:
    """A method, and its request with a few bytes changed, removed or added; often near the start, where lengths are."""
    method, unchanged = draw(st.sampled_from(REQUESTS))
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


def codes_of(channel: grpc.Channel, method: str, body: bytes) -> set[int]:
    """Every google.rpc.Code in the answer: the call's own, or its instances'."""
    call: Any = channel.unary_unary(f"/quantra.v1.PredictionService/{method}")
    try:
        answer = call(body, timeout=30)
    except grpc.RpcError as refused:
        return {refused.code().value[0]}
    if method != "Predict":
        return {OK}
    return {result.error.code for result in pb.PredictResponse.FromString(answer).results}


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(request=mutated())
def test_changed_bytes_are_never_our_fault(channel: grpc.Channel, request: tuple[str, bytes]) -> None:
    assert not codes_of(channel, *request) & OUR_FAULT


@pytest.mark.parametrize(("method", "body"), REQUESTS)
def test_the_same_bytes_unchanged_are_answered(channel: grpc.Channel, method: str, body: bytes) -> None:
    assert codes_of(channel, method, body) == {OK}
