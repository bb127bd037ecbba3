"""KServe requests with random byte changes: a response or a client error, never an internal error."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from artifacts import recent_bars, save_small_artifact, small_models
from hypothesis import given, settings
from kserve_requests import a_window, bars, infer_request, parameters, wanting
from request_bytes import ids, mutated

from predictor._pb import inference_pb2 as pb
from predictor.call_context import CallContext
from predictor.calls import PredictionCalls
from predictor.errors import QuantraError, Status, get_error_status
from predictor.service import PredictionService

if TYPE_CHECKING:
    from concurrent.futures import Future

SHORT = recent_bars("AAPL", "IBM").last(140)
REQUESTS = [
    (name, request.SerializeToString())
    for name, request in (
        ("ModelInfer", infer_request(a_window(), id="a", outputs=wanting("values", "error"))),
        ("ModelInfer", infer_request(a_window(), is_raw=False)),
        ("ModelInfer", infer_request(bars(SHORT), parameters=parameters(gap_policy="mask", calendar="XNYS"))),
        ("ModelInfer", infer_request(bars(SHORT, SHORT), "graph", is_raw=False)),
        ("ModelMetadata", pb.ModelMetadataRequest(name="small", version="1")),
        ("ModelConfig", pb.ModelConfigRequest(name="small")),
        ("ModelReady", pb.ModelReadyRequest(name="small", version="1")),
    )
]


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PredictionCalls]:
    models = small_models(tmp_path_factory.mktemp("models"))
    save_small_artifact(models / "graph" / "1", "graph")
    with PredictionService.open(models) as service:
        calls = PredictionCalls(service)
        yield calls
        calls.close()


def status_of(answer: "Future[bytes]") -> Status | None:
    """The status of a failed call; None for a response."""
    error = answer.exception(30)
    if error is None:
        return None
    assert isinstance(error, QuantraError)
    return get_error_status(error).status


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(request=mutated(REQUESTS))
def test_changed_bytes_are_never_our_fault(calls: PredictionCalls, request: tuple[str, bytes]) -> None:
    assert status_of(calls.handle(*request, CallContext())) is not Status.INTERNAL


@pytest.mark.parametrize(("name", "body"), REQUESTS, ids=ids(REQUESTS))
def test_the_same_bytes_unchanged_are_answered(calls: PredictionCalls, name: str, body: bytes) -> None:
    assert status_of(calls.handle(name, body, CallContext())) is None
