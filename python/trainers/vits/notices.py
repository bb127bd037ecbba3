"""What one should know of a prepared corpus before learning from it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from trainers.vits.corpus import SpeechCorpus

SHOWN: Final = 20
"""How many clips, characters or files one notice lists."""


def notices(corpus: SpeechCorpus) -> tuple[str, ...]:
    """Clips that were left out, characters that are not spoken or not learnt, recordings without a line; or nothing."""
    return tuple(_notices(corpus))


def notices_of_corrections(corpus: SpeechCorpus, idle: Sequence[str]) -> tuple[str, ...]:
    """Corrections that were left out, characters that are not spoken, ratings that change nothing; or nothing.

    Args:
        corpus: of corrections.
        idle: names of clips that choose or judge, and are rated above 1.
    """
    return tuple(_notices_of_corrections(corpus, idle))


def _notices_of_corrections(corpus: SpeechCorpus, idle: Sequence[str]) -> Iterator[str]:
    yield from _doubts(corpus)
    if idle:
        yield f"{len(idle)} clips that choose or judge are rated above 1, which changes nothing: {_listed(idle)}"


def _notices(corpus: SpeechCorpus) -> Iterator[str]:
    yield from _doubts(corpus)
    if corpus.untaught:
        yield f"no clip of the train part has, and nothing teaches: {_counted(corpus.untaught)}"
    if corpus.unlisted:
        yield f"{len(corpus.unlisted)} recordings have no line in metadata.csv: {_listed(corpus.unlisted)}"


def _doubts(corpus: SpeechCorpus) -> Iterator[str]:
    """What is as true of corrections as of any corpus."""
    if corpus.refused:
        total = len(corpus.refused) + len(corpus.clips)
        reasons = "".join(f"\n  {one.name}: {one.reason}" for one in corpus.refused[:SHOWN])
        yield f"{len(corpus.refused)} of {total} clips were left out:{reasons}{_rest(len(corpus.refused), chr(10))}"
    if corpus.unknown:
        yield f"the vocabulary does not hold, and nothing speaks: {_counted(corpus.unknown)}"


def _counted(counts: Mapping[str, int]) -> str:
    """Characters and how often they occur, the most frequent first."""
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return _listed(f"{sign!r} ({count} times)" for sign, count in ordered)


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:SHOWN]) + _rest(len(listed), " ")


def _rest(count: int, space: str) -> str:
    return f"{space}and {count - SHOWN} more" if count > SHOWN else ""
