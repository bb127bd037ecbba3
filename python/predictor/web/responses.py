"""Messages as JSON: requests that are parsed, and responses of results and errors."""

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeVar, cast

import numpy as np
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from starlette.responses import Response

from predictor.errors import (
    MalformedRequestError,
    QuantraError,
    QueueFullError,
    RequestTooLargeError,
    Status,
    get_error_status,
)
from predictor.wire import errors
from predictor.wire.errors import shortened

STATUS_CODES: Final[Mapping[Status, int]] = {
    Status.INVALID_ARGUMENT: 400,
    Status.FAILED_PRECONDITION: 400,
    Status.UNAUTHENTICATED: 401,
    Status.PERMISSION_DENIED: 403,
    Status.NOT_FOUND: 404,
    Status.RESOURCE_EXHAUSTED: 429,
    Status.CANCELLED: 499,
    Status.INTERNAL: 500,
    Status.DATA_LOSS: 500,
    Status.UNIMPLEMENTED: 501,
    Status.UNAVAILABLE: 503,
    Status.DEADLINE_EXCEEDED: 504,
}
"""HTTP status of each status, as google.rpc.Code lists them."""
TOO_LARGE: Final = 413
"""HTTP status of a request that stays too large, unlike one that finds a full queue."""
JSON: Final = "application/json"


def respond(message: Message, *, as_lists: bool = False, code: int = 200) -> Response:
    """Respond with the JSON of a message."""
    return Response(format_message(message, as_lists=as_lists), code, media_type=JSON)


def respond_error(error: QuantraError, *, ends_connection: bool = False) -> Response:
    """Respond with the JSON of quantra.v1.Error.

    Args:
        error: The error.
        ends_connection: Whether to close the connection, because the rest of its request is not read.
    """
    response = respond(errors.encode(error), code=status_code(error))
    if isinstance(error, QueueFullError):
        response.headers["retry-after"] = str(math.ceil(error.retry_after_s))
    if ends_connection:
        response.headers["connection"] = "close"
    return response


def status_code(error: QuantraError) -> int:
    """Return the HTTP status of an error."""
    return TOO_LARGE if isinstance(error, RequestTooLargeError) else STATUS_CODES[get_error_status(error).status]


MAX_PARTS: Final = 250_000
"""Most brackets and commas of a request. Parsing holds the GIL, for some 50 ms with this many; base64 has none."""
MAX_TEXT: Final = 65_536
"""Most characters of a text in a request; protobuf searches it, and holds the GIL. Numbers in base64 may be longer."""
_PIECE: Final = 256 * 1024
_MAX_SHOWN_CHARACTERS: Final = 300
_NUMBERS: Final = "<f8"
_TENSOR_NUMBERS: Final = {"DATA_TYPE_FLOAT32": "<f4", 1: "<f4", "DATA_TYPE_BOOL": "|b1", 3: "|b1"}

MessageT = TypeVar("MessageT", bound=Message)


def parse_message(body: bytes, kind: type[MessageT]) -> tuple[MessageT, bool]:
    """Parse a request, and whether it has lists instead of bytes.

    Raises:
        RequestTooLargeError: It has more than MAX_PARTS parts, or a text has more than MAX_TEXT characters.
        MalformedRequestError: It is not such a message.
    """
    # Count the parts of a request, a piece at a time, because a count holds the GIL.
    parts = 0
    for start in range(0, len(body), _PIECE):
        parts += sum(body.count(sign, start, start + _PIECE) for sign in (b",", b"[", b"{"))
        if parts > MAX_PARTS:
            raise RequestTooLargeError(
                f"the JSON has more than {MAX_PARTS} lists, objects and values; send numbers in base64, or several "
                "requests",
                metadata={"have": f"more than {MAX_PARTS}", "most": str(MAX_PARTS)},
            )
    encoded_lists: list[bool] = []
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
        if not isinstance(value, dict):
            raise _make_malformed_error(kind, f"the JSON is a {type(value).__name__}, not an object")
        _convert(
            value,
            descriptor_of(kind),
            lambda numbers, owner, symbols: _encode(numbers, owner, symbols, encoded_lists),
        )
        return json_format.ParseDict(value, kind(), max_recursion_depth=20), bool(encoded_lists)
    except (json_format.ParseError, ValueError, TypeError, RecursionError, OverflowError) as error:
        raise _make_malformed_error(kind, str(error)) from None


def format_message(message: Message, *, as_lists: bool = False) -> bytes:
    """Format a response; `as_lists` gives lists of numbers instead of base64."""
    value = json_format.MessageToDict(message, always_print_fields_with_no_presence=True)
    _convert(
        value,
        descriptor_of(type(message)),
        _decode if as_lists else lambda text, _owner, _symbols: text,
        has_nulls=True,
    )
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def descriptor_of(kind: type[Message]) -> Descriptor:
    """Return the descriptor of a message."""
    return cast("Descriptor", kind.DESCRIPTOR)


def _convert(
    value: Any,
    kind: Descriptor,
    convert: Callable[[Any, dict[str, Any], Any], Any],
    symbols: Any = (),
    *,
    has_nulls: bool = False,
) -> None:
    """Convert the bytes of a message in place.

    Unknown names are left for protobuf to reject, so the depth is that of the messages.

    Args:
        value: The message.
        kind: Its descriptor.
        convert: Converts bytes, given their message and its symbols.
        symbols: Symbols of the message around it.
        has_nulls: Whether numbers that are not finite become null.
    """
    if not isinstance(value, dict):
        return
    panel = value.get("bars", value)  # the covariates of an instance have the symbols of its bars
    if isinstance(panel, dict):
        symbols = panel.get("symbols", symbols)
    for name, content in value.items():
        field = kind.fields_by_camelcase_name.get(name) or kind.fields_by_name.get(name)
        if field is None or content is None:
            continue
        if field.type == FieldDescriptor.TYPE_BYTES:
            value[name] = convert(content, value, symbols)
        elif field.type == FieldDescriptor.TYPE_STRING and not has_nulls:
            texts = content if isinstance(content, list) else (content,)
            for text in texts:
                if isinstance(text, str) and len(text) > MAX_TEXT:
                    raise RequestTooLargeError(
                        f"{name} has a text of {len(text)} characters, at most {MAX_TEXT}",
                        metadata={"have": str(len(text)), "most": str(MAX_TEXT)},
                    )
        elif field.type == FieldDescriptor.TYPE_DOUBLE:
            value[name] = None if has_nulls and content in _NOT_FINITE else content
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for item in content if isinstance(content, list) else (content,):
                _convert(item, field.message_type, convert, symbols, has_nulls=has_nulls)


_NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")


def _encode(numbers: Any, owner: dict[str, Any], symbols: Any, encoded_lists: list[bool]) -> Any:
    """Encode a list of numbers, nested or not, as base64; `encoded_lists` notes it.

    Raises:
        ValueError: It has other values than numbers and null, or it is not nested by symbol.
    """
    if not isinstance(numbers, list):
        return numbers
    encoded_lists.append(True)
    kind = _TENSOR_NUMBERS.get(owner.get("type", ""), _NUMBERS)
    array = np.asarray(numbers, object)  # lists of unequal lengths stay lists, which are no numbers
    wrong = {type(number) for number in array.flat} - {int, float, type(None), bool if kind == "|b1" else float}
    if wrong:
        raise ValueError(
            f"a list of numbers has a {wrong.pop().__name__}; send rows of equal length, of numbers or null"
        )
    if "shape" in owner and array.ndim > 1 and array.shape != tuple(map(int, owner["shape"])):
        raise ValueError(f"a list is nested as {array.shape}, but the shape is {tuple(owner['shape'])}")
    if "shape" not in owner and array.ndim > 1 and len(array) != len(symbols):
        raise ValueError(f"a nested list has {len(array)} rows for {len(symbols)} symbols; send one row per symbol")
    values = array.astype(np.float64)
    if np.isinf(values).any():
        raise ValueError("a number is too large for a float64")
    return base64.b64encode(values.astype(kind).tobytes()).decode()


def _decode(text: str, *_: Any) -> list[float | None]:
    numbers = np.frombuffer(binascii.a2b_base64(text), _NUMBERS)
    return [number if math.isfinite(number) else None for number in numbers.tolist()]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON; send null")


def _make_malformed_error(kind: type[Message], problem: str) -> MalformedRequestError:
    name = kind.DESCRIPTOR.name
    return MalformedRequestError(
        f"the body is not the JSON of a {name}: {shortened(problem, _MAX_SHOWN_CHARACTERS)}; see /openapi.json"
    )
