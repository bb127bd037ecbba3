"""Header blocks that the library hpack decodes too."""

from hpack import Decoder, Encoder, HPACKError
from hypothesis import given, settings
from hypothesis import strategies as st

from predictor.http2.frames import ConnectionFault
from predictor.http2.header_blocks import HeaderDecoder

Fields = list[tuple[bytes, bytes]]
LIMIT = 2000

NAMES = st.sampled_from([b":path", b"accept", b"key", b"user-agent"]) | st.binary(max_size=40)
FIELDS = st.lists(st.tuples(NAMES, st.binary(max_size=60)), max_size=6)
PARTS = [
    b"\x82",
    b"\xbe",
    b"\xbf",
    b"\xff\x00",
    b"\x40\x01a\x01b",
    b"\x7e\x01c",
    b"\x0f\x2f\x00",
    b"\x10\x81\x1f\x00",
    b"\x20",
]


def _decoded(decoder: HeaderDecoder, block: bytes) -> Fields | None:
    try:
        return list(decoder._decode(block)[0])
    except ConnectionFault:
        return None


def _expected(decoder: Decoder, block: bytes) -> Fields | None:
    try:
        return [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
    except HPACKError:
        return None


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(FIELDS, st.booleans(), st.none() | st.integers(0, 4096)), max_size=6))
def test_encoded_fields(blocks: list[tuple[Fields, bool, int | None]]) -> None:
    encoder, decoder, judge = Encoder(), HeaderDecoder(LIMIT), Decoder(2 * LIMIT)
    for fields, huffman, table_size in blocks:
        if table_size is not None:
            encoder.header_table_size = table_size
        block = encoder.encode(fields, huffman=huffman)
        assert _decoded(decoder, block) == fields == _expected(judge, block)


@settings(max_examples=600, deadline=None, derandomize=True, database=None)
@given(st.lists(st.lists(st.sampled_from(PARTS) | st.binary(max_size=6), max_size=8).map(b"".join), max_size=6))
def test_damaged_blocks(blocks: list[bytes]) -> None:
    decoder, judge = HeaderDecoder(LIMIT), Decoder(2 * LIMIT)
    for block in blocks:
        decoded = _decoded(decoder, block)
        if decoded is None and block[:1] and block[0] & 0xE0 == 0x20:
            return  # hpack allows any number of table sizes
        assert decoded == _expected(judge, block)
        if decoded is None:
            return
