"""Header blocks: decoding with a cache, validation, and encoding without state (RFC 9113, section 8; RFC 7541)."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

from hpack import HPACKDecodingError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from predictor.http2.events import Headers
from predictor.http2.frames import ConnectionFault, ErrorCode, StreamFault

_CACHED_BYTES: Final = 1 << 17
_INDEXED, _ADDED, _TABLE_SIZE, _HUFFMAN = 0x80, 0x40, 0x20, 0x80
_MAX_INTEGER_BITS: Final = 35
_STATIC: Final = HeaderTable.STATIC_TABLE
_MAX_TABLE_SIZE_UPDATES: Final = 2  # RFC 7541, section 4.2: the smallest size and the last one
_PSEUDO_HEADERS: Final = frozenset({b":method", b":scheme", b":path", b":authority"})
_REQUIRED: Final = frozenset({b":method", b":scheme", b":path"})
_CONNECTION_SPECIFIC: Final = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
)
_is_token: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_is_name: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
_is_value: Final = re.compile(rb"(?![ \t])[^\0\r\n]*(?<![ \t])").fullmatch  # section 8.2.1
_is_length: Final = re.compile(rb"[0-9]{1,18}").fullmatch


@final
@dataclass(frozen=True, slots=True)
class RequestHeaders:
    """Valid headers of a request."""

    headers: Headers
    content_length: int
    """-1 if not declared."""


@final
class _MalformedHeadersError(Exception):
    """Headers that a request must not have."""


@final
class HeaderDecoder:
    """Decodes the header blocks of one connection.

    A block decodes to the same object as before while the dynamic table is unchanged. The cache stores 128 KiB of
    blocks and headers and one more request, and the table 4 KiB.
    """

    def __init__(self, header_list: int) -> None:
        self._header_list = header_list
        self._table = HeaderTable()
        self._cache: dict[bytes, RequestHeaders] = {}
        self._cached_bytes = 0

    def decode_request(self, stream: int, block: bytes) -> RequestHeaders:
        """Decode the headers of a request.

        Raises:
            ConnectionFault: the block cannot be decoded.
            StreamFault: the headers are malformed or too large.
        """
        cached = self._cache.get(block)
        if cached is not None:
            return cached
        headers, size, changes_table = self._decode(block)
        self._check_size(stream, size)
        try:
            request = RequestHeaders(headers, _check_request(headers))
        except _MalformedHeadersError as problem:
            raise StreamFault(stream, ErrorCode.PROTOCOL_ERROR, str(problem)) from None
        if not changes_table:
            if self._cached_bytes > _CACHED_BYTES:
                self._clear()
            self._cache[block] = request
            self._cached_bytes += len(block) + size
        return request

    def decode_trailers(self, stream: int, block: bytes) -> None:
        """Check the trailers of a request, whose content no gRPC server needs.

        Raises:
            ConnectionFault: the block cannot be decoded.
            StreamFault: the trailers are malformed or too large.
        """
        headers, size, _ = self._decode(block)
        self._check_size(stream, size)
        try:
            for name, value in headers:
                _check_field(name, value)
        except _MalformedHeadersError as problem:
            raise StreamFault(stream, ErrorCode.PROTOCOL_ERROR, str(problem)) from None

    def skip(self, block: bytes) -> None:
        """Decode a block whose headers are not used, since later ones may refer to it (section 4.3).

        Raises:
            ConnectionFault: the block cannot be decoded.
        """
        self._decode(block)

    def _decode(self, block: bytes) -> tuple[Headers, int, bool]:
        """Headers, their size, and whether the dynamic table changed."""
        try:
            headers, size, changes_table = self._read_fields(block)
        except (HPACKDecodingError, IndexError) as error:
            reason = f"a header block cannot be decoded: {error}"
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, reason) from None
        if changes_table:
            self._clear()
        return headers, size, changes_table

    def _read_fields(self, block: bytes) -> tuple[Headers, int, bool]:
        """RFC 7541, section 6. A block that ends within a field raises IndexError."""
        table, fields = self._table, list[tuple[bytes, bytes]]()
        at = size = table_sizes = 0
        changes_table = False
        while at < len(block):
            first = block[at]
            if first & _INDEXED:
                index, at = _read_integer(block, at, 0x7F)
                field = _STATIC[index - 1] if 0 < index <= len(_STATIC) else table.get_by_index(index)
            elif first & (_ADDED | _TABLE_SIZE) == _TABLE_SIZE:
                table_sizes += 1
                table_size, at = _read_integer(block, at, 0x1F)
                if fields or table_sizes > _MAX_TABLE_SIZE_UPDATES or table_size > HeaderTable.DEFAULT_SIZE:
                    raise HPACKDecodingError("the size of the table is too large, too late or repeated")
                table.maxsize = table_size
                changes_table = True
                continue
            else:
                index, at = _read_integer(block, at, 0x3F if first & _ADDED else 0x0F)
                if index:
                    name = (_STATIC[index - 1] if index <= len(_STATIC) else table.get_by_index(index))[0]
                else:
                    name, at = _read_string(block, at)
                value, at = _read_string(block, at)
                field = (name, value)
                if first & _ADDED:
                    table.add(name, value)
                    changes_table = True
            fields.append(field)
            size += len(field[0]) + len(field[1]) + 32
            if size > 2 * self._header_list:
                raise ConnectionFault(
                    ErrorCode.ENHANCE_YOUR_CALM, f"the headers of a request have {size} bytes or more"
                )
        return tuple(fields), size, changes_table

    def _check_size(self, stream: int, size: int) -> None:
        if size > self._header_list:
            raise StreamFault(stream, ErrorCode.ENHANCE_YOUR_CALM, f"the headers have {size} bytes")

    def _clear(self) -> None:
        self._cache.clear()
        self._cached_bytes = 0


def _read_integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Read an integer whose first bits are those of `mask`, and return where it ends (RFC 7541, section 5.1)."""
    number = block[at] & mask
    at += 1
    if number < mask:
        return number, at
    for shift in range(0, _MAX_INTEGER_BITS, 7):
        number += (block[at] & 0x7F) << shift
        at += 1
        if block[at - 1] < 0x80:  # noqa: PLR2004
            return number, at
    raise HPACKDecodingError("an integer is too long")


def _read_string(block: bytes, at: int) -> tuple[bytes, int]:
    """RFC 7541, section 5.2."""
    is_huffman = block[at] & _HUFFMAN
    length, at = _read_integer(block, at, 0x7F)
    end = at + length
    if end > len(block):
        raise HPACKDecodingError("a name or value is truncated")
    return (decode_huffman(block[at:end]) if is_huffman else block[at:end]), end


def _check_request(headers: Headers) -> int:
    """Check the headers of a request and return its content length (sections 8.1.1 to 8.3.1)."""
    pseudo: dict[bytes, bytes] = {}
    host = content_length = None
    is_regular = False
    for name, value in headers:
        if name[:1] == b":":
            if is_regular or name in pseudo or name not in _PSEUDO_HEADERS or not _is_value(value):
                raise _MalformedHeadersError("a pseudo header is unknown, repeated, late or has a forbidden character")
            pseudo[name] = value
            continue
        is_regular = True
        _check_field(name, value)
        if name == b"host":
            if host not in {None, value}:
                raise _MalformedHeadersError("a request has two hosts")
            host = value
        elif name == b"content-length":
            if not _is_length(value) or content_length not in {None, int(value)}:
                raise _MalformedHeadersError("the content length is not a number, or there are two")
            content_length = int(value)
    if not pseudo.keys() >= _REQUIRED or not _is_token(pseudo[b":method"]) or not pseudo[b":scheme"]:
        raise _MalformedHeadersError("a request lacks its method, scheme or path")
    if not (pseudo[b":path"].startswith(b"/") or pseudo[b":path"] == b"*"):
        raise _MalformedHeadersError("a path must begin with /")
    if not (authority := pseudo.get(b":authority", host)) or host not in {None, authority}:
        raise _MalformedHeadersError("a request has no authority, or another than its host")
    return -1 if content_length is None else content_length


def _check_field(name: bytes, value: bytes) -> None:
    """Check one regular header or trailer (sections 8.2.1 and 8.2.2)."""
    if not _is_name(name) or not _is_value(value):
        raise _MalformedHeadersError("the name or value of a header has a forbidden character")
    if name in _CONNECTION_SPECIFIC or (name == b"te" and value.lower() != b"trailers"):
        raise _MalformedHeadersError("a header belongs to HTTP/1 connections")


def encode_headers(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Encode a header block that any peer decodes at any time: it uses the static table only."""
    block = bytearray()
    for name, value in headers:
        prefix, indices = _find_name(name)
        if value in indices:
            block += _encode_integer(indices[value], 7, 0x80)
        else:
            block += prefix + _encode_integer(len(value), 7, 0) + value
    return bytes(block)


@lru_cache(maxsize=64)
def _find_name(name: bytes) -> tuple[bytes, Mapping[bytes, int]]:
    """Return the start of a header whose value is not in the static table, and the index of each value that is."""
    index, indices = HeaderTable.STATIC_TABLE_MAPPING.get(name, (0, {}))
    prefix = _encode_integer(index, 4, 0)
    return prefix if index else prefix + _encode_integer(len(name), 7, 0) + name, indices


def _encode_integer(number: int, bits: int, pattern: int) -> bytes:
    """RFC 7541, section 5.1."""
    mask = (1 << bits) - 1
    if number < mask:
        return bytes([pattern | number])
    encoded, number = bytearray([pattern | mask]), number - mask
    while number >= 0x80:  # noqa: PLR2004
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
