"""Stream requests with random byte changes: no internal errors, and every other request gets a response."""

from collections.abc import Iterator

import pytest
from artifacts import small_models
from hypothesis import given, settings
from request_bytes import OUR_FAULT, STREAM_REQUESTS, mutated
from talks import StreamInterface, stream_interface

from predictor._pb import prediction_pb2 as pb
from predictor.errors import MalformedRequestError
from predictor.service import PredictionService


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PredictionService]:
    with PredictionService.open(small_models(tmp_path_factory.mktemp("models")), device="cpu") as opened:
        yield opened


@pytest.fixture(scope="module", params=["grpc", "embedded"])
def door(request: pytest.FixtureRequest, service: PredictionService) -> Iterator[StreamInterface]:
    with stream_interface(request.param, service) as opened:
        yield opened


def with_id(request_id: str) -> bytes:
    """A valid request with another id."""
    request = pb.PredictStreamRequest.FromString(STREAM_REQUESTS[0][1])
    request.request_id = request_id
    return request.SerializeToString()


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(changed=mutated(STREAM_REQUESTS))
def test_changed_bytes_are_answered_or_end_the_stream(door: StreamInterface, changed: tuple[str, bytes]) -> None:
    talk = door.open()
    for body in (with_id("before"), changed[1], with_id("after")):
        talk.send(body)
    talk.end()
    heard, error = talk.rest()
    assert not {one.error.code for one in heard} & OUR_FAULT
    if error is None:
        assert len(heard) == 3
    else:
        assert isinstance(error, MalformedRequestError)
        assert [one.request_id for one in heard] == ["before"]


def test_the_same_bytes_unchanged_are_answered(door: StreamInterface) -> None:
    for _, body in STREAM_REQUESTS:
        talk = door.open()
        talk.send(body)
        talk.end()
        heard, error = talk.rest()
        assert ([one.request_id for one in heard], error) == (["changed"], None)
