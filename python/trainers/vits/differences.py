"""Where what was heard differs from what was to be said, letter by letter."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["right", "wrong", "missing"]
"""Heard as meant; heard, but not meant there; meant, but not heard."""


@dataclass(frozen=True, slots=True)
class TextSpan:
    """Letters in a row of one kind.

    Attributes:
        kind: of all of them.
        text: the letters: what was heard, or what is missing from it.
    """

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class TextDifference:
    """A text that was heard beside the one that was meant.

    Attributes:
        pieces: of what was heard, with what is missing, in order.
        errors: the edit distance of the two texts.
    """

    pieces: tuple[TextSpan, ...]
    errors: int


def difference(heard: str, meant: str) -> TextDifference:
    """Mark what must be put in, taken away or replaced to make one text of the other, with as few such steps as can be.

    Args:
        heard: by the judge.
        meant: in the judge's spelling.
    """
    letters = list(_letters(heard, meant))
    grouped = groupby(letters, key=itemgetter(0))
    return TextDifference(
        pieces=tuple(TextSpan(kind, "".join(letter for _, letter in group)) for kind, group in grouped),
        errors=sum(kind != "right" for kind, _ in letters),
    )


def _letters(heard: str, meant: str) -> Iterator[tuple[Kind, str]]:
    """Every letter with its kind, along a shortest path from the texts' start; a letter in another's place is wrong."""
    left = _remaining(heard, meant)
    i = j = 0
    while i < len(heard) or j < len(meant):
        if i < len(heard) and j < len(meant) and left[i][j] == left[i + 1][j + 1] + (heard[i] != meant[j]):
            yield "right" if heard[i] == meant[j] else "wrong", heard[i]
            i, j = i + 1, j + 1
        elif i < len(heard) and left[i][j] == left[i + 1][j] + 1:
            yield "wrong", heard[i]
            i += 1
        else:
            yield "missing", meant[j]
            j += 1


def _remaining(heard: str, meant: str) -> list[list[int]]:
    """The edit distance of what is left of both from every place: [heard + 1][meant + 1]."""
    left = [[len(heard) - i + len(meant) - j for j in range(len(meant) + 1)] for i in range(len(heard) + 1)]
    for i in reversed(range(len(heard))):
        for j in reversed(range(len(meant))):
            replaced = left[i + 1][j + 1] + (heard[i] != meant[j])
            left[i][j] = min(replaced, left[i + 1][j] + 1, left[i][j + 1] + 1)
    return left
