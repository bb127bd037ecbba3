"""The OpenAPI description of the HTTP calls, from the messages of quantra.v1."""

import json
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from grpc_health.v1.health_pb2 import HealthCheckResponse

from predictor._pb import prediction_pb2 as pb
from predictor.web.responses import descriptor_of

PATHS: Final = "SimulatePaths"
"""The call whose answers are joined to one."""


class PostRoute(NamedTuple):
    """A call with a request in the body."""

    path: str
    name: str
    """Of the call in quantra.v1."""
    text: str
    request: type[Message]
    response: type[Message]


POST_ROUTES: Final = (
    PostRoute("/v1/forecast", "Predict", "Forecast the instances of a request.", pb.PredictRequest, pb.PredictResponse),
    PostRoute("/v1/explain", "Explain", "Explain one forecast.", pb.ExplainRequest, pb.ExplainResponse),
    PostRoute("/v1/paths", PATHS, "Simulate price paths.", pb.SimulatePathsRequest, pb.SimulatePathsResponse),
)
_GETS: Final[tuple[tuple[str, str, type[Message]], ...]] = (
    ("/v1/models", "List the served models.", pb.ListModelsResponse),
    ("/v1/models/{model}", "Describe a model: NAME, NAME@VERSION or NAME@ALIAS.", pb.GetModelResponse),
    ("/v1/health", "Whether the server answers calls.", HealthCheckResponse),
)
_NUMBER: Final = FieldDescriptor.TYPE_DOUBLE
_INTEGERS: Final = (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64)
_LISTED: Final[dict[str, Any]] = {
    "description": "Numbers: little-endian bytes in base64, or a list, nested or not, in which null is missing.",
    "oneOf": [{"type": "string", "contentEncoding": "base64"}, {"type": "array"}],
}


@cache
def describe_api() -> bytes:
    """Return the description, OpenAPI 3.1, as JSON."""
    roots = [pb.Error, *(kind for route in POST_ROUTES for kind in (route.request, route.response))]
    roots += [kind for *_, kind in _GETS]
    schemas: dict[str, Any] = {}
    for root in roots:
        _describe(descriptor_of(root), schemas)
    timeout = {"name": "x-timeout-seconds", "in": "header", "schema": {"type": "number"}}
    paths: dict[str, Any] = {
        route.path: {
            "post": {
                **_describe_operation(route.text, route.response, timeout),
                "requestBody": _describe_content(route.request),
            }
        }
        for route in POST_ROUTES
    }
    model_parameter = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    for path, text, kind in _GETS:
        paths[path] = {"get": _describe_operation(text, kind, *([model_parameter] if "{" in path else []))}
    description = {
        "openapi": "3.1.0",
        "info": {"title": "Quantra", "version": version("quantra"), "description": "quantra.v1 in protobuf's JSON."},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }
    return json.dumps(description, separators=(",", ":")).encode()


def _describe_operation(text: str, response: type[Message], *parameters: dict[str, Any]) -> dict[str, Any]:
    responses = {
        "200": {"description": "The response.", **_describe_content(response)},
        "default": {"description": "Why there is none.", **_describe_content(pb.Error)},
    }
    return {"summary": text, "parameters": list(parameters), "responses": responses, "security": [{}, {"token": []}]}


def _describe_content(kind: type[Message]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": _refer_to(descriptor_of(kind))}}}


def _refer_to(kind: "Descriptor | EnumDescriptor") -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.full_name}"}


def _describe(kind: Descriptor, schemas: dict[str, Any]) -> None:
    """Add the schema of a message, and of those in it."""
    if kind.full_name in schemas:
        return
    properties: dict[str, Any] = {}
    schemas[kind.full_name] = {"type": "object", "properties": properties, "additionalProperties": False}
    for field in kind.fields:
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        element = {"type": "object", "additionalProperties": {"type": "string"}} if is_map else _describe_value(field)
        properties[field.json_name] = (
            {"type": "array", "items": element} if field.is_repeated and not is_map else element
        )
        for message in () if is_map else _list_messages_within(field):
            _describe(message, schemas)
        if field.enum_type is not None:
            schemas[field.enum_type.full_name] = {
                "type": "string",
                "enum": [value.name for value in field.enum_type.values],
            }


def _describe_value(field: FieldDescriptor) -> dict[str, Any]:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _LISTED
    if field.type in _INTEGERS:  # protobuf writes 64 bits as a string, and reads both
        return {"type": ["integer", "string"] if field.type == FieldDescriptor.TYPE_INT64 else "integer"}
    if field.type == _NUMBER:
        return {"type": ["number", "null"]}
    for kind in (field.message_type, field.enum_type):
        if kind is not None:
            return _refer_to(kind)
    return {"type": "boolean" if field.type == FieldDescriptor.TYPE_BOOL else "string"}


def _list_messages_within(field: FieldDescriptor) -> Iterator[Descriptor]:
    if field.message_type is not None:
        yield field.message_type
