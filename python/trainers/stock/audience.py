"""Who hears of what a call from Python does: a person at a terminal or a notebook, or nobody."""

import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final
from weakref import WeakSet

from trainers.loop import Report
from trainers.progress import ConsumerChain, ReportConsumer, progress_for
from trainers.stock.announcing import announcer, tell, warner
from trainers.stock.backtest.folds import Fold, told_fold
from trainers.stock.backtest.run import Watch, in_silence
from trainers.stock.doubts import Warn, to_nobody


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressOutput:
    """Where progress, stages and warnings go."""

    consume: ReportConsumer
    """The reports of epochs."""
    announce: Callable[[str], None]
    """A stage that begins."""
    tell: Callable[[str], None]
    """What came out."""
    warn: Warn
    watch: Watch
    """The folds of a backtest."""


@contextmanager
def audience(*, quiet: bool) -> Generator[ProgressOutput]:
    """Whoever sits before standard output, unless it is to be quiet.

    Nothing is drawn any more afterwards, also not by the thread of a live bar, however the work inside has ended.
    """
    if quiet:
        yield ProgressOutput(
            consume=ConsumerChain(), announce=to_nobody, tell=to_nobody, warn=to_nobody, watch=in_silence
        )
        return
    progress = _EndedProgress(progress_for(sys.stdout))
    announce = announcer(as_json=False)
    try:
        yield ProgressOutput(
            consume=progress, announce=announce, tell=tell, warn=warner(as_json=False), watch=_told(announce)
        )
    finally:
        progress.end()


@final
class _EndedProgress:
    """A consumer that can be ended from outside.

    Whoever stops reading its reports ends it, as nobody else holds them: here they are known weakly. An exception
    outside of it, such as Ctrl+C between two reports, does not, for its traceback keeps them alive.
    """

    def __init__(self, consumer: ReportConsumer) -> None:
        self._consumer = consumer
        self._passing = WeakSet[Generator[Report]]()

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """Hand the reports through the consumer."""
        passing = self._consumer(reports)
        if isinstance(passing, Generator):
            self._passing.add(passing)
        return passing

    def end(self) -> None:
        """Let every one that still waits for reports put away what it has drawn."""
        for passing in tuple(self._passing):
            passing.close()


def _told(announce: Callable[[str], None]) -> Watch:
    def watched(folds: Iterator[Fold], total: int) -> Iterator[Fold]:
        for count, fold in enumerate(folds, start=1):
            announce(f"fold {count}/{total} {told_fold(fold)}")
            yield fold

    return watched
