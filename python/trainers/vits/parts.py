"""Cuts texts into parts: to learn from, to choose by, to judge by; a text stands in one of them only."""

import hashlib
import unicodedata
from collections.abc import Iterable, Mapping

from trainers.vits.contents import Part
from trainers.vits.errors import CorpusError


def parts_of(texts: Iterable[str], *, selection: float, held_out: float) -> Mapping[str, Part]:
    """The part of every text.

    By a hash of the words, whatever their capitals and punctuation: neither the order of the texts nor what else is
    recorded later moves a text that a share put where it is.

    Args:
        texts: of the clips; one may occur often.
        selection: below 1 a share of the texts, else their number.
        held_out: the same.

    Raises:
        CorpusError: Too few different texts for three parts.
    """
    texts = list(texts)
    places = {words: _place(words) for words in map(words_of, texts)}
    ordered = sorted(places, key=lambda words: (places[words], words))
    judged = _count(places.values(), 0.0, held_out)
    chosen = _count(places.values(), held_out if held_out < 1 else 0.0, selection)
    if judged + chosen >= len(ordered):
        raise CorpusError(
            f"{judged} held-out and {chosen} selection texts leave none of {len(ordered)} different ones to learn "
            "from; record more sentences, or hold out fewer"
        )
    part: dict[str, Part] = dict.fromkeys(ordered, "train")
    part |= dict.fromkeys(ordered[:judged], "held_out")
    part |= dict.fromkeys(ordered[judged : judged + chosen], "selection")
    return {text: part[words_of(text)] for text in texts}


def _count(places: Iterable[float], start: float, wanted: float) -> int:
    """How many texts a part gets: a number, or those whose place is in a share's stretch; at least one."""
    if wanted >= 1:
        return int(wanted)
    return max(1, sum(start <= place < start + wanted for place in places))


def words_of(text: str) -> str:
    """What is said, without capitals and punctuation."""
    spoken = "".join(" " if unicodedata.category(sign)[0] == "P" else sign for sign in text.lower())
    return " ".join(spoken.split())


def _place(words: str) -> float:
    """A number from 0 to below 1 that only the words decide."""
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:6]) / 2**48
