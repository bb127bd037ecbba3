"""Which methods a server has, as it tells itself, and messages that each of them would read."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, final

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection_pb2

ASK: Final = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
_DEEPEST: Final = 4
_WHOLE: Final = frozenset(
    {
        FieldDescriptor.CPPTYPE_INT32,
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_UINT64,
    }
)


@final
@dataclass(frozen=True, slots=True)
class Method:
    """One method of the server."""

    path: str
    reads: Descriptor
    takes_many: bool
    """Whether the caller sends a stream."""
    gives_many: bool


def methods(channel: grpc.Channel, timeout_s: float = 20.0) -> list[Method]:
    """Every method of every service that the server lists.

    Raises:
        grpc.RpcError: it has no reflection.
    """
    listing = _asked(channel, [reflection_pb2.ServerReflectionRequest(list_services="")], timeout_s)
    names = [service.name for answer in listing for service in answer.list_services_response.service]
    wanted = [reflection_pb2.ServerReflectionRequest(file_containing_symbol=name) for name in names]
    files: dict[str, FileDescriptorProto] = {}
    for answer in _asked(channel, wanted, timeout_s):
        for data in answer.file_descriptor_response.file_descriptor_proto:
            file = FileDescriptorProto.FromString(data)
            files[file.name] = file
    return list(_methods(pool_of(files), names))


def _asked(channel: grpc.Channel, questions: Iterable[Any], timeout_s: float) -> list[Any]:
    call: Any = channel.stream_stream(ASK)
    sent = iter([question.SerializeToString() for question in questions])
    return [reflection_pb2.ServerReflectionResponse.FromString(body) for body in call(sent, timeout=timeout_s)]


def pool_of(files: Mapping[str, FileDescriptorProto]) -> DescriptorPool:
    """The files, each after those that it imports; imports that the server did not send are left to chance."""
    pool, added = DescriptorPool(), set[str]()

    def add(name: str) -> None:
        if name in added or name not in files:
            return
        added.add(name)
        for needed in files[name].dependency:
            add(needed)
        pool.Add(files[name])

    for name in files:
        add(name)
    return pool


def _methods(pool: DescriptorPool, names: Iterable[str]) -> Iterator[Method]:
    for name in names:
        for method in pool.FindServiceByName(name).methods:
            yield Method(f"/{name}/{method.name}", method.input_type, method.client_streaming, method.server_streaming)


def filled(kind: Descriptor, random: Random, depth: int = 0) -> Message:
    """A message with something in most of its fields."""
    message = GetMessageClass(kind)()
    for field in kind.fields:
        if random.random() < 0.8 and depth < _DEEPEST:
            _fill(message, field, random, depth)
    return message


def _fill(message: Message, field: FieldDescriptor, random: Random, depth: int) -> None:
    count = random.randint(1, 3)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return
    if field.message_type is not None:
        place: Any = getattr(message, field.name)
        if field.is_repeated:
            place.extend(filled(field.message_type, random, depth + 1) for _ in range(count))
        else:
            place.CopyFrom(filled(field.message_type, random, depth + 1))
    elif field.is_repeated:
        getattr(message, field.name).extend(_value(field, random) for _ in range(count))
    else:
        setattr(message, field.name, _value(field, random))


def _value(field: FieldDescriptor, random: Random) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return random.choice(field.enum_type.values).number
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return random.choice(["stock", "", "x" * 300]) if field.type == FieldDescriptor.TYPE_STRING else b"\0" * 16
    if field.cpp_type in _WHOLE:
        return random.choice((0, 1, 20130301, (1 << 31) - 1))
    return random.choice((0, 1))
