"""Decoding of requests and their model references."""

from typing import TYPE_CHECKING, final

from predictor._pb import prediction_pb2 as pb
from predictor.errors import MalformedRequestError, QuantraError
from predictor.instance import InstanceOrError
from predictor.wire import instances
from predictor.wire.limits import MAX_HEAD, check_count, check_text
from predictor.wire.request_counts import MessageT, RequestCounts, parse

if TYPE_CHECKING:
    from collections.abc import Sequence


def parse_short(body: bytes, kind: type[MessageT]) -> MessageT:
    """Parse a request that has only a few short fields."""
    check_count("the request: bytes", len(body), MAX_HEAD)
    return parse(body, kind)


@final
class InstanceDecoder:
    """Decodes the instances of a request; raises MalformedRequestError if it has no instance."""

    def __init__(self, body: bytes, counted: RequestCounts) -> None:
        if not counted.instances:
            raise MalformedRequestError("instances: have 0, need at least 1", metadata={"field": "instances"})
        self._body, self._positions = body, counted.instances
        self.request_ids: Sequence[str] = ()
        """Id of each decoded instance; empty if it failed to decode."""

    def decode(self) -> tuple[InstanceOrError, ...]:
        """Decode each instance, or return its error; call it once, because it frees the bytes."""
        body, self._body = self._body, b""
        messages = [each if isinstance(each, QuantraError) else _parse_instance(body[each]) for each in self._positions]
        del body  # the messages have copies
        self.request_ids = tuple("" if isinstance(each, QuantraError) else each.request_id for each in messages)
        return tuple(each if isinstance(each, QuantraError) else instances.decode_or_error(each) for each in messages)


def _parse_instance(body: bytes) -> pb.Instance | QuantraError:
    try:
        return parse(body, pb.Instance)
    except MalformedRequestError as error:
        return error


def check_reference(reference: str) -> str:
    """Check the length of a model reference and return it."""
    check_text("model", reference)
    return reference
