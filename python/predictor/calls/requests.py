"""Requests that were counted, and that are read only when their turn comes: bytes wait in less memory than arrays."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar, final

from google.protobuf.message import DecodeError, Message

from predictor._pb import prediction_pb2 as pb
from predictor.errors import MalformedRequestError, QuantraError
from predictor.global_importance import GlobalQuery
from predictor.instance import Query, ReadInstance
from predictor.wire import attributions, global_importance, instances
from predictor.wire.limits import check_text
from predictor.wire.request_counts import RequestCounts, no_message

MessageT = TypeVar("MessageT", bound=Message)


def parsed(body: bytes, kind: type[MessageT]) -> MessageT:
    """The message.

    Raises:
        MalformedRequestError: the bytes are none.
    """
    try:
        return kind.FromString(body)
    except DecodeError:
        raise no_message(kind, len(body)) from None


@final
class EncodedInstances:
    """The instances of a request's bytes.

    Args:
        body: the request.
        counted: what it holds.

    Raises:
        MalformedRequestError: it holds no instance.
    """

    def __init__(self, body: bytes, counted: RequestCounts) -> None:
        if not counted.instances:
            raise MalformedRequestError("instances: have 0, need at least 1", metadata={"field": "instances"})
        self._body = body
        self._places = counted.instances
        self._ids: tuple[str, ...] = ()
        self.rows = counted.rows
        self.size = len(body)

    def instances(self) -> tuple[ReadInstance, ...]:
        """Each instance, or what is wrong with it; called once, for the bytes are let go then."""
        body, self._body = self._body, b""
        messages = [place if isinstance(place, QuantraError) else _message(body[place]) for place in self._places]
        del body  # the messages have copies of their own
        self._ids = tuple("" if isinstance(one, QuantraError) else one.request_id for one in messages)
        return tuple(one if isinstance(one, QuantraError) else instances.decode_or_error(one) for one in messages)

    @property
    def request_ids(self) -> Sequence[str]:
        """Of each instance, once they were read; empty where it could not be."""
        return self._ids


@final
class ParsedInstances:
    """The instances of a request that is parsed whole, because it is small. Until its turn it waits as bytes.

    Args:
        body: the request.
        found: its instances.
        read: finds them once more.
    """

    def __init__(
        self, body: bytes, found: Sequence[pb.Instance], read: Callable[[bytes], Sequence[pb.Instance]]
    ) -> None:
        self._body, self._read = body, read
        self._ids: tuple[str, ...] = ()
        self.rows = sum(len(one.bars.symbols) + len(one.window.symbols) for one in found)
        self.size = len(body)

    def instances(self) -> tuple[ReadInstance, ...]:
        """Each instance, or what is wrong with it; called once, for the bytes are let go then."""
        messages, self._body = self._read(self._body), b""
        self._ids = tuple(one.request_id for one in messages)
        return instances.decode_each(messages)

    @property
    def request_ids(self) -> Sequence[str]:
        """Of each instance, once they were read."""
        return self._ids


def _message(body: bytes) -> pb.Instance | QuantraError:
    try:
        return parsed(body, pb.Instance)
    except MalformedRequestError as error:
        return error


@final
class EncodedQuery:
    """The query of an explanation's request.

    Args:
        body: the request.
        counted: what it holds.
    """

    def __init__(self, body: bytes, counted: RequestCounts) -> None:
        self._message = parsed(body, pb.ExplainRequest)
        self.rows = counted.rows
        self.size = len(body)

    @property
    def model(self) -> str:
        """The reference of the model that is asked."""
        return checked_reference(self._message.model)

    @property
    def request_id(self) -> str:
        """Comes back with the answer."""
        return self._message.instance.request_id

    def query(self) -> Query:
        """What is asked; raises as `attributions.decode_query`."""
        return attributions.decode_query(self._message)


@final
class EncodedGlobalQuery:
    """The instances and targets of a request for a global explanation.

    Args:
        body: the request.
        counted: what it holds.

    Raises:
        MalformedRequestError: it holds no instance.
    """

    def __init__(self, body: bytes, counted: RequestCounts) -> None:
        self._head = parsed(counted.head, pb.ExplainGlobalRequest)
        self._instances = EncodedInstances(body, counted)
        self.rows, self.size = counted.rows, len(body)

    @property
    def model(self) -> str:
        """The reference of the model that is asked."""
        return checked_reference(self._head.model)

    def query(self) -> GlobalQuery:
        """What is asked; called once. Raises as `global_importance.decode_query`."""
        return replace(global_importance.decode_query(self._head), instances=self._instances.instances())


def checked_reference(reference: str) -> str:
    """The reference of a model, no longer than a name may be."""
    check_text("model", reference)
    return reference
