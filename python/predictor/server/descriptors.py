"""What reflection tells of: the files of every service, together."""

from typing import TYPE_CHECKING

from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from predictor._pb import inference_pb2, prediction_pb2

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor


def described() -> DescriptorPool:
    """A pool of all files: the public inference protocol has one of its own, beside the default one of the others."""
    pool, known = DescriptorPool(), set[str]()
    for module in (prediction_pb2, inference_pb2, health_pb2, reflection_pb2):
        _add(module.DESCRIPTOR, pool, known)
    return pool


def _add(file: "FileDescriptor", pool: DescriptorPool, known: set[str]) -> None:
    """Add a file after those that it imports."""
    if file.name in known:
        return
    known.add(file.name)
    for imported in file.dependencies:
        _add(imported, pool, known)
    pool.AddSerializedFile(file.serialized_pb)
