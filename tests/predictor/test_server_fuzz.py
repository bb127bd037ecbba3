"""Requests with random byte changes: a response or a client error, never an internal error."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from artifacts import save_small_artifact, small_models
from google.rpc.code_pb2 import Code
from hypothesis import given, settings
from request_bytes import OUR_FAULT, REQUESTS, ids, mutated
from serving import serving

from predictor._pb import prediction_pb2 as pb
from predictor.service import PredictionService

OK = Code.Value("OK")


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


def codes_of(channel: grpc.Channel, method: str, body: bytes) -> set[int]:
    """Every google.rpc.Code in a response: the call's own, or its instances'."""
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


@pytest.mark.parametrize(("method", "body"), REQUESTS, ids=ids(REQUESTS))
def test_the_same_bytes_unchanged_are_answered(channel: grpc.Channel, method: str, body: bytes) -> None:
    assert codes_of(channel, method, body) == {OK}
