"""ModelStreamInfer: response order, ids, and limits on open requests."""

from concurrent.futures import Future

import pytest
from kserve_requests import a_window, infer_request

from predictor._pb import inference_pb2 as pb
from predictor.call_context import CallContext
from predictor.calls.inference import InferStream
from predictor.calls.streams import FlowControl
from predictor.errors import ModelNotFoundError, UnavailableError
from predictor.wire.errors import MAX_INSTANCE_MESSAGE
from predictor.wire.kserve.models import encode_error, encode_response, read_request_id

MOST = 3


class Stream:
    """A stream whose responses come from the test."""

    def __init__(self, max_bytes: int | None = None) -> None:
        self.begun: list[Future[bytes]] = []
        self.context = CallContext()
        self.emitted: list[bytes] = []
        self.window = FlowControl(MOST, 1 << 20)
        self.call = InferStream(self._infer, self.context, self.emitted.append, self.window, max_bytes)

    def _infer(self, request: bytes, context: CallContext) -> "Future[bytes]":
        assert context is self.context
        assert request
        answer: Future[bytes] = Future()
        self.begun.append(answer)
        return answer

    def send(self, request_id: str) -> bool:
        return self.call.send(pb.ModelInferRequest(model_name="small", id=request_id).SerializeToString())

    def answer(self, place: int, request_id: str) -> None:
        self.begun[place].set_result(pb.ModelInferResponse(id=request_id).SerializeToString())

    def told(self) -> list[tuple[str, str]]:
        """Ids and errors in the order of arrival."""
        answers = [pb.ModelStreamInferResponse.FromString(one) for one in self.emitted]
        return [(one.infer_response.id, one.error_message) for one in answers]


def test_answers_come_in_the_order_of_their_requests() -> None:
    stream = Stream()
    for request_id in "abc":
        stream.send(request_id)
    stream.answer(2, "c")
    stream.answer(1, "b")
    assert stream.told() == []
    stream.answer(0, "a")
    assert stream.told() == [("a", ""), ("b", ""), ("c", "")]


def test_an_error_fails_its_request_and_the_stream_continues() -> None:
    stream = Stream()
    for request_id in "ab":
        stream.send(request_id)
    stream.begun[0].set_exception(ModelNotFoundError("there is no model"))
    stream.answer(1, "b")
    assert stream.told() == [("a", "there is no model"), ("b", "")]
    parameters = pb.ModelStreamInferResponse.FromString(stream.emitted[0]).infer_response.parameters
    assert {name: one.string_param for name, one in parameters.items()} == {
        "status": "NOT_FOUND",
        "reason": "MODEL_NOT_FOUND",
    }


def test_requests_come_while_there_is_room_and_an_answer_makes_room_once_it_was_taken() -> None:
    stream = Stream()
    assert [stream.send(one) for one in "abc"] == [True, True, False]
    stream.answer(0, "a")
    assert stream.call.acknowledge(len(stream.emitted[0]))


def test_a_stream_holds_the_bytes_of_a_request_then_those_of_its_answer() -> None:
    stream = Stream()
    request = pb.ModelInferRequest(model_name="small", id="a").SerializeToString()
    stream.call.send(request)
    assert (stream.window.count, stream.window.size) == (1, len(request))
    stream.answer(0, "a")
    assert (stream.window.count, stream.window.size) == (1, len(stream.emitted[0])) != (1, len(request))
    stream.call.acknowledge(len(stream.emitted[0]))
    assert (stream.window.count, stream.window.size) == (0, 0)


def test_a_stream_ends_once_all_it_was_asked_is_answered() -> None:
    stream = Stream()
    stream.send("a")
    stream.call.end_requests()
    assert not stream.call.completion.done()
    stream.answer(0, "a")
    assert stream.call.completion.result(0) is None
    assert not stream.send("b")


def test_a_stopping_server_responds_before_it_gives_the_reason() -> None:
    stream = Stream()
    stream.send("a")
    stream.call.drain(UnavailableError("the server is stopping"))
    assert not stream.send("b")
    stream.answer(0, "a")
    assert stream.told() == [("a", "")]
    assert isinstance(stream.call.completion.exception(0), UnavailableError)


def test_cancelling_drops_what_waits_and_says_nothing_more() -> None:
    stream = Stream()
    for request_id in "ab":
        stream.send(request_id)
    stream.call.cancel()
    assert stream.context.is_cancelled
    assert [answer.cancelled() for answer in stream.begun] == [True, True]
    assert stream.told() == []


def test_a_too_large_response_is_a_separate_error() -> None:
    stream = Stream(max_bytes=20)
    for request_id in ("a", "b" * 100):
        stream.send(request_id)
    stream.answer(1, "b" * 100)
    stream.answer(0, "a")
    assert [error[:28] for _, error in stream.told()] == ["", "the response has 104 bytes, "]


@pytest.mark.parametrize("size", [0, 1, 127, 128, 20_000, 3_000_000])
def test_an_answer_is_wrapped_as_protobuf_would(size: int) -> None:
    answer = pb.ModelInferResponse(raw_output_contents=[bytes(size)])
    wrapped = encode_response(answer.SerializeToString())
    assert pb.ModelStreamInferResponse.FromString(wrapped).infer_response == answer


def test_the_id_of_a_request_is_found_without_reading_the_rest() -> None:
    assert read_request_id(infer_request(a_window(), id="é7").SerializeToString()) == "é7"
    assert read_request_id(infer_request(a_window()).SerializeToString()) == ""
    assert read_request_id(b"\xff\xff garbage") == ""
    assert len(read_request_id(pb.ModelInferRequest(id="7" * 9000).SerializeToString())) == 256


def test_a_long_error_is_truncated() -> None:
    told = pb.ModelStreamInferResponse.FromString(encode_error("a", UnavailableError("x" * 100_000)))
    assert len(told.error_message) < 2 * MAX_INSTANCE_MESSAGE


def test_a_request_that_is_being_begun_while_its_stream_is_cancelled_is_dropped() -> None:
    work: Future[bytes] = Future()

    def infer(request: bytes, context: CallContext) -> "Future[bytes]":
        del request, context
        call.cancel()
        return work

    call = InferStream(infer, CallContext(), [].append, FlowControl(MOST, 1 << 20))
    assert not call.send(b"")
    assert work.cancelled()


def test_a_stream_that_its_caller_has_ended_ends_in_order_though_the_server_stops() -> None:
    stream = Stream()
    stream.send("a")
    stream.call.end_requests()
    stream.call.drain(UnavailableError("the server is stopping"))
    stream.answer(0, "a")
    assert stream.call.completion.exception(0) is None
