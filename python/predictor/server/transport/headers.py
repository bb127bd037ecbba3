"""The headers of gRPC calls and their responses; see the gRPC document PROTOCOL-HTTP2."""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, final
from urllib.parse import quote

from grpc import StatusCode

from predictor.http2 import Headers, encode_headers

Metadata: TypeAlias = Mapping[str, str | bytes]
"""Values by lower-case name; those of names that end with -bin are bytes."""
_UNITS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_MAX_TIMEOUT_LENGTH: Final = 9
"""At most 8 digits and a unit."""
_CONTENT_TYPE: Final = b"application/grpc"
_BINARY: Final = b"-bin"
_UNQUOTED: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
RESPONSE_HEADERS: Final = encode_headers(
    ((b":status", b"200"), (b"content-type", _CONTENT_TYPE), (b"grpc-accept-encoding", b"identity, gzip"))
)
"""The headers before the first message of a response."""
_TRAILERS_ONLY_HEADERS: Final = encode_headers(((b":status", b"200"), (b"content-type", _CONTENT_TYPE)))
OK_TRAILERS: Final = encode_headers(((b"grpc-status", b"0"),))
"""The trailers of a successful response, before its metadata."""
_STATUS: Final = {code: encode_headers(((b"grpc-status", str(code.value[0]).encode()),)) for code in StatusCode}


@final
@dataclass(frozen=True, slots=True)
class RequestHead:
    """The parsed headers of a call."""

    method: str
    """/SERVICE/METHOD."""
    metadata: tuple[tuple[str, str | bytes], ...]
    """All headers but the pseudo headers; a name may occur more than once."""
    timeout_s: float | None
    """Seconds that the caller waits; None: no deadline."""
    encoding: str
    """Compression of the messages that are marked as compressed."""


@final
class NotGrpcError(Exception):
    """The request is not a gRPC call.

    Attributes:
        status: HTTP status of the response.
    """

    def __init__(self, status: bytes) -> None:
        super().__init__(status.decode())
        self.status = status


def parse_head(headers: Headers) -> RequestHead:
    """Read the headers of a call.

    Raises:
        NotGrpcError: the method is not POST, or the content is not gRPC.
        ValueError: the timeout or a binary header is malformed.
    """
    values = dict(headers)
    if values[b":method"] != b"POST":
        raise NotGrpcError(b"405")
    content_type = values.get(b"content-type", b"")
    if not content_type.startswith(_CONTENT_TYPE) or content_type[len(_CONTENT_TYPE) :][:1] not in (b"", b"+", b";"):
        raise NotGrpcError(b"415")
    timeout = values.get(b"grpc-timeout")
    metadata = tuple(
        (name.decode("ascii", "replace"), text)
        for name, value in headers
        if name[:1] != b":"
        for text in (_decode_binary(name, value) if name.endswith(_BINARY) else (value.decode("ascii", "replace"),))
    )
    return RequestHead(
        method=values[b":path"].decode("ascii", "replace"),
        metadata=metadata,
        timeout_s=None if timeout is None else _decode_timeout(timeout),
        encoding=values.get(b"grpc-encoding", b"identity").decode("ascii", "replace"),
    )


def _decode_binary(name: bytes, value: bytes) -> list[bytes]:
    """Decode a binary header, in which proxies may join several values with commas."""
    try:
        return [b64decode(part + b"=" * (-len(part) % 4), validate=True) for part in value.split(b",")]
    except binascii.Error:
        raise ValueError(f"header {name[:80].decode('ascii', 'replace')} is not base64") from None


def _decode_timeout(timeout: bytes) -> float:
    digits, unit = timeout[:-1], _UNITS.get(timeout[-1:])
    if unit is None or not digits.isdigit() or len(timeout) > _MAX_TIMEOUT_LENGTH:
        raise ValueError("header grpc-timeout is not a number of at most 8 digits and a unit of H, M, S, m, u or n")
    return int(digits) * unit


def encode_trailers(code: StatusCode, message: str, metadata: Metadata, *, has_begun: bool) -> bytes:
    """Encode the end of a response; before the first message it includes the headers."""
    block = _STATUS[code] if has_begun else _TRAILERS_ONLY_HEADERS + _STATUS[code]
    if message:
        block += encode_headers(((b"grpc-message", quote(message, safe=_UNQUOTED).encode()),))
    return block + encode_metadata(metadata)


def encode_metadata(metadata: Metadata) -> bytes:
    """Encode the metadata of a response."""
    fields: list[tuple[bytes, bytes]] = []
    for key, value in metadata.items():
        fields.append((key.encode(), b64encode(value).rstrip(b"=") if isinstance(value, bytes) else value.encode()))
    return encode_headers(fields)
