"""Who hears of what a call from Python does: a person at a terminal or a notebook, or nobody."""

import json
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import final
from weakref import WeakSet

from trainers.loop import Report
from trainers.progress import ConsumerChain, ReportConsumer, is_cell, progress_for
from trainers.stock.backtest.backtest import Watch, in_silence
from trainers.stock.backtest.folds import Fold, told_fold
from trainers.stock.data_warnings import Warn, to_nobody


def announcer(*, as_json: bool) -> Callable[[str], None]:
    """Tells a person or a program on standard output, among the other lines of a long run."""

    def announce(stage: str) -> None:
        if as_json:
            sys.stdout.write(json.dumps({"kind": "stage", "stage": stage}) + "\n")
            sys.stdout.flush()
        else:
            _print(f"{stage} …", "dim")

    return announce


def tell(line: str) -> None:
    """Tells a person what came out, on standard output."""
    _print(line, "")


def warner(*, as_json: bool) -> Callable[[str], None]:
    """Warns where `announcer` announces."""

    def warn(line: str) -> None:
        if as_json:
            sys.stdout.write(json.dumps({"kind": "warning", "warning": line}) + "\n")
            sys.stdout.flush()
        else:
            _print(f"warning: {line}", "yellow")

    return warn


def warn_beside(line: str) -> None:
    """Warns where `announce_beside` announces."""
    _print(f"warning: {line}", "yellow", beside=True)


def announce_beside(stage: str) -> None:
    """Tells a person on standard error, where standard output is one answer that a program may read."""
    _print(f"{stage} …", "dim", beside=True)


def _print(line: str, style: str, *, beside: bool = False) -> None:
    stream = sys.stderr if beside else sys.stdout
    if find_spec("rich") is None:
        stream.write(line + "\n")
        stream.flush()
        return
    from rich.console import Console

    # In a notebook, rich would make each line a piece of HTML, cut off at the right.
    console = Console(file=stream, force_jupyter=False)
    console.print(line, style=style, markup=False, highlight=False, soft_wrap=is_cell(stream))


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
