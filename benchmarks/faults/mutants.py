"""Messages that nobody meant: valid requests that were changed, and bytes at random.

Every change takes a seeded generator, so that a run can be repeated.
"""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

Change = Callable[[Random, bytearray, Sequence[bytes]], None]
"""Changes a message in place; the other messages are there to take parts from."""

_LARGEST_FIELD: Final = (1 << 29) - 1
_HEAD: Final = 48
"""Where the lengths of outer messages stand."""
NUMBERS: Final = (0, 1, 127, 128, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1)
LENGTHS: Final = (0, 1, 127, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1)


def varint(value: int) -> bytes:
    """A number of protobuf."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def tag(field: int, form: int) -> bytes:
    """What stands before a field: 0 varint, 1 fixed64, 2 bytes, 3 and 4 a group's ends, 5 fixed32; 6 and 7 are none."""
    return varint(field << 3 | form)


def delimited(field: int, content: bytes) -> bytes:
    """A field of bytes, a text or a message."""
    return tag(field, 2) + varint(len(content)) + content


def group(field: int, content: bytes = b"") -> bytes:
    """A field of protobuf's old kind, whose end is marked."""
    return tag(field, 3) + content + tag(field, 4)


def _place(random: Random, body: bytearray) -> int:
    """Somewhere, often near the start."""
    reach = random.choice((_HEAD, 2000, len(body)))
    return random.randrange(max(1, min(reach, len(body) + 1)))


def flip(random: Random, body: bytearray, _: Sequence[bytes]) -> None:
    """Change one bit."""
    if body:
        body[_place(random, body) % len(body)] ^= 1 << random.randrange(8)


def overwrite(random: Random, body: bytearray, _: Sequence[bytes]) -> None:
    """Change one byte to any other, often to an extreme one."""
    if body:
        body[_place(random, body) % len(body)] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))


def drop(random: Random, body: bytearray, _: Sequence[bytes]) -> None:
    """Take some bytes away."""
    at = _place(random, body)
    del body[at : at + random.randint(1, 9)]


def insert(random: Random, body: bytearray, _: Sequence[bytes]) -> None:
    """Put some random bytes in."""
    at = _place(random, body)
    body[at:at] = random.randbytes(random.randint(1, 9))


def duplicate(random: Random, body: bytearray, _: Sequence[bytes]) -> None:
    """Repeat a stretch."""
    at = _place(random, body)
    body[at:at] = body[at : at + random.randint(1, 64)] * random.randint(1, 4)


def truncate(random: Random, body: bytearray, _: Sequence[bytes]) -> None:
    """Cut the end off."""
    del body[_place(random, body) :]


def splice(random: Random, body: bytearray, others: Sequence[bytes]) -> None:
    """Go on as another message does."""
    other = random.choice(others)
    body[_place(random, body) :] = other[random.randrange(len(other) + 1) :]


def stranger(random: Random, body: bytearray, others: Sequence[bytes]) -> None:
    """Put another method's fields in, whole."""
    at = random.choice((0, len(body)))
    body[at:at] = random.choice(others)


def extreme(random: Random, body: bytearray, _: Sequence[bytes]) -> None:
    """Put a field in that holds, or claims to have, an extreme number."""
    field = random.choice((*range(1, 25), _LARGEST_FIELD))
    number = tag(field, 0) + varint(random.choice(NUMBERS))
    length = tag(field, 2) + varint(random.choice(LENGTHS)) + random.randbytes(random.randrange(4))
    endless = tag(field, 0) + b"\xff" * random.randint(5, 12)
    at = random.choice((0, len(body), _place(random, body)))
    body[at:at] = random.choice((number, length, endless))


def grouped(random: Random, body: bytearray, _: Sequence[bytes]) -> None:
    """Put groups in: empty, within groups, without an end, or an end alone."""
    field = random.randint(1, 30)
    nested = group(field)
    for _ in range(random.choice((0, 1, 50, 200))):
        nested = group(field, nested)
    at = random.choice((0, len(body), _place(random, body)))
    body[at:at] = random.choice((nested, tag(field, 3), tag(field, 4), tag(field, 3) * 150))


def unknown(random: Random, body: bytearray, _: Sequence[bytes]) -> None:
    """Put messages within messages in, of fields that there are or are not."""
    content = random.randbytes(random.randrange(8))
    for _ in range(random.choice((1, 3, 30, 120))):
        content = delimited(random.choice((1, 2, 3, 4, 100, 1000)), content)
    at = random.choice((0, len(body)))
    body[at:at] = content


CHANGES: Final[Sequence[Change]] = (
    flip,
    overwrite,
    drop,
    insert,
    duplicate,
    truncate,
    splice,
    stranger,
    extreme,
    grouped,
    unknown,
)
LONGEST_NOISE: Final = 300
NOISE_SHARE: Final = 0.1
LONGEST: Final = 200_000
"""Bytes that a message keeps at most."""


def mutants(random: Random, valid: Sequence[bytes], others: Sequence[bytes]) -> Iterator[bytes]:
    """Without end: one in ten bytes at random, the others one of `valid` with one to four changes.

    Args:
        random: Chooses.
        valid: Messages of the method that will read them.
        others: Messages of any method.
    """
    while True:
        if random.random() < NOISE_SHARE:
            yield random.randbytes(random.randrange(LONGEST_NOISE))
            continue
        body = bytearray(random.choice(valid))
        for _ in range(random.randint(1, 4)):
            random.choice(CHANGES)(random, body, others)
        yield bytes(body[:LONGEST])
