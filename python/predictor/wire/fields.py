"""Encoding of single protobuf fields around bytes that are encoded already, which saves a copy of large messages."""

_CONTINUED = 0x80
_BYTES = 2
"""Wire type of texts, bytes and messages."""


def encode_field(number: int, content: bytes) -> bytes:
    """Encode a field of text, bytes or a message; its number is at most 15."""
    header, size = bytearray((number << 3 | _BYTES,)), len(content)
    while size >= _CONTINUED:
        header.append(size & 0x7F | _CONTINUED)
        size >>= 7
    header.append(size)
    return bytes(header) + content
