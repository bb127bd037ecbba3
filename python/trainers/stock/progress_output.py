"""Printing of stages, warnings and progress to a terminal, a notebook or a program."""

import json
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from typing import final
from weakref import WeakSet

from predictor.canonical import Json
from predictor.jobs import JobRunner
from trainers.loop import Report
from trainers.progress import ConsumerChain, ReportConsumer, is_cell, progress_for
from trainers.stock.backtest.backtest import FoldProgress, iterate_silently
from trainers.stock.backtest.refits import Fold, describe_fold
from trainers.stock.data_warnings import Warn, discard


def make_announcer(*, as_json: bool) -> Callable[[str], None]:
    """A function that prints the stages of a long run to standard output, as text or JSON."""
    return partial(_print_json, "stage") if as_json else lambda stage: _print(f"{stage} …", "dim")


def tell(line: str) -> None:
    """Print a result to standard output."""
    _print(line, "")


def make_warner(*, as_json: bool) -> Callable[[str], None]:
    """A function that prints warnings to standard output, as text or JSON."""
    return partial(_print_json, "warning") if as_json else lambda line: _print(f"warning: {line}", "yellow")


def _print_json(kind: str, line: str) -> None:
    sys.stdout.write(json.dumps({"kind": kind, kind: line}) + "\n")
    sys.stdout.flush()


def warn_on_stderr(line: str) -> None:
    """Print a warning to standard error."""
    _print(f"warning: {line}", "yellow", to_stderr=True)


def announce_on_stderr(stage: str) -> None:
    """Print a stage to standard error, which leaves standard output to the result."""
    _print(f"{stage} …", "dim", to_stderr=True)


def _print(line: str, style: str, *, to_stderr: bool = False) -> None:
    stream = sys.stderr if to_stderr else sys.stdout
    if find_spec("rich") is None:
        stream.write(line + "\n")
        stream.flush()
        return
    from rich.console import Console

    # In a notebook, rich would print each line as HTML that is cut off at the right.
    console = Console(file=stream, force_jupyter=False)
    console.print(line, style=style, markup=False, highlight=False, soft_wrap=is_cell(stream))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressOutput:
    """Functions that show progress, stages and warnings."""

    consume: ReportConsumer
    """Epoch reports."""
    announce: Callable[[str], None]
    """A stage that begins."""
    tell: Callable[[str], None]
    """A result."""
    warn: Warn
    watch: FoldProgress
    """The folds of a backtest."""


@contextmanager
def open_progress(*, quiet: bool) -> Generator[ProgressOutput]:
    """Show progress on standard output unless `quiet`; live bars stop when the block ends, also on an exception."""
    if quiet:
        yield ProgressOutput(
            consume=ConsumerChain(), announce=discard, tell=discard, warn=discard, watch=iterate_silently
        )
        return
    progress = _ClosableProgress(progress_for(sys.stdout))
    announce = make_announcer(as_json=False)

    def watch(folds: Iterator[Fold], total: int) -> Iterator[Fold]:
        for count, fold in enumerate(folds, start=1):
            announce(f"fold {count}/{total} {describe_fold(fold)}")
            yield fold

    try:
        warn = make_warner(as_json=False)
        yield ProgressOutput(consume=progress, announce=announce, tell=tell, warn=warn, watch=watch)
    finally:
        progress.end()


@final
class _ClosableProgress:
    """A consumer that can be closed from outside.

    Its generators end when their reader drops them, so they are held weakly here. After an exception such as Ctrl+C
    between two reports, the traceback keeps them alive, and `end` must close them.
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
        """Close every open generator, which stops its live bar."""
        for passing in tuple(self._passing):
            passing.close()


def describe_jobs(runner: JobRunner) -> dict[str, Json]:
    """The progress of jobs in other processes, as a field `jobs` for programs."""
    return {"jobs": asdict(runner.progress)} if runner.is_parallel and runner.progress.jobs else {}
