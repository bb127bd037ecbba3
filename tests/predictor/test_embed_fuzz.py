"""Random bytes sent to the embedded server: the same responses as from a gRPC server, and no internal errors."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from artifacts import save_small_artifact, small_models
from google.rpc.status_pb2 import Status
from hypothesis import given, settings
from hypothesis import strategies as st
from request_bytes import OUR_FAULT, REQUESTS, ids, mutated
from serving import serving

from predictor._pb import prediction_pb2 as pb
from predictor.embed import EmbeddedServer, open_embedded_server
from predictor.service import PredictionService
from predictor.wire.errors import DETAILS_KEY

NAMES = ("ListModels", "GetModel", "Predict", "Explain")
GOOD = (*REQUESTS, ("ListModels", b""))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = small_models(tmp_path_factory.mktemp("models"))
    for kind in ("graph", "tft"):
        save_small_artifact(folder / kind / "1", kind)
    return folder


@pytest.fixture(scope="module")
def door(models: Path) -> Iterator[EmbeddedServer]:
    door, _ = open_embedded_server(str(models), "cpu", 256, 1)
    assert door is not None
    yield door
    door.close()


@pytest.fixture(scope="module")
def channel(models: Path) -> Iterator[grpc.Channel]:
    with (
        PredictionService.open(models, device="cpu") as service,
        serving(service) as served,
        grpc.insecure_channel(served.target) as channel,
    ):
        yield channel


def from_door(door: EmbeddedServer, name: str, request: bytes) -> tuple[bytes, bytes]:
    """Response bytes and status bytes of the embedded server."""
    answer, status = door.call(name, request, 30).answer()
    return timeless(name, answer), status


def from_server(channel: grpc.Channel, name: str, request: bytes) -> tuple[bytes, bytes]:
    """Response bytes and status bytes of the gRPC server."""
    call: Any = channel.unary_unary(f"/quantra.v1.PredictionService/{name}")
    try:
        return timeless(name, call(request, timeout=30)), b""
    except grpc.RpcError as refused:
        trailers = cast("Iterable[tuple[str, bytes]]", refused.trailing_metadata())  # the stubs lack __iter__
        return b"", dict(trailers)[DETAILS_KEY]


def timeless(name: str, answer: bytes) -> bytes:
    """A response without durations and without request counts that differ between interfaces."""
    if name == "GetModel" and answer:
        told = pb.GetModelResponse.FromString(answer)
        assert told.limits.bytes > 0
        told.limits.ClearField("bytes")
        return told.SerializeToString(deterministic=True)
    if name != "Explain":
        return answer
    explanation = pb.ExplainResponse.FromString(answer)
    explanation.ClearField("queue_ms")
    explanation.ClearField("compute_ms")
    return explanation.SerializeToString(deterministic=True)


@pytest.mark.parametrize(("name", "request_bytes"), GOOD, ids=ids(GOOD))
def test_a_good_request_has_the_servers_answer(
    door: EmbeddedServer, channel: grpc.Channel, name: str, request_bytes: bytes
) -> None:
    answer, status = from_door(door, name, request_bytes)
    assert (answer, status) == from_server(channel, name, request_bytes)
    assert answer != b""


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(request=mutated())
def test_changed_bytes_have_the_servers_answer(
    door: EmbeddedServer, channel: grpc.Channel, request: tuple[str, bytes]
) -> None:
    answer, status = from_door(door, *request)
    assert (answer, status) == from_server(channel, *request)
    assert not codes_in(request[0], answer, status) & OUR_FAULT


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(name=st.sampled_from(NAMES), body=st.binary(max_size=60))
def test_bytes_at_random_have_the_servers_answer(
    door: EmbeddedServer, channel: grpc.Channel, name: str, body: bytes
) -> None:
    answer, status = from_door(door, name, body)
    assert (answer, status) == from_server(channel, name, body)
    assert not codes_in(name, answer, status) & OUR_FAULT


def codes_in(name: str, answer: bytes, status: bytes) -> set[int]:
    """Every google.rpc.Code in a response: the call's own, and its instances'."""
    results = pb.PredictResponse.FromString(answer).results if name == "Predict" else ()
    return {Status.FromString(status).code, *(result.error.code for result in results)}
