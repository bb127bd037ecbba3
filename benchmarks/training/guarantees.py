"""Where training loops go wrong, and what each of them does there: the columns beside the speed."""

import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from rich.console import Console
from rich.table import Table

from benchmarks.report import Row, shown
from benchmarks.training.asking import GoneError, Respondent
from benchmarks.training.environments import NoEnvironmentError, python_of

RIGHT = 1e-5  # relative; what float32 leaves of a sum in another order
DIES_AFTER = 19 * 8  # samples: in the second of two epochs, after the second checkpoint and before the third


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One way to go wrong.

    Attributes:
        probe: Its name in `benchmarks.training.probes`.
        title: The column's head.
        right: The value of a loop that does not go wrong.
        meaning: What the value is.
    """

    probe: str
    title: str
    right: float
    meaning: str


QUESTIONS = (
    Question(
        probe="partition",
        title="window of 8 + 8 + 3\n= batch of 19",
        right=0,
        meaning="relative error of the step",
    ),
    Question(
        probe="tail",
        title="step of a tail\nwindow",
        right=1,
        meaning="size of the last step of 5 batches in windows of 2, relative to the right one",
    ),
    Question(
        probe="shortage",
        title="after memory\nran out",
        right=0,
        meaning="relative error of all that was learned, when only 10 of 16 samples fit from the third batch on",
    ),
    Question(
        probe="saved",
        title="after kill -9\nin mid-epoch",
        right=0,
        meaning="relative difference of the weights to a training that was not killed",
    ),
    Question(
        probe="skipped",
        title="schedule after a\nskipped step",
        right=0,
        meaning="steps of the scheduler beyond those of the optimizer, after one overflow under a gradient scaler",
    ),
    Question(
        probe="skipped, fused",
        title="the same, fused\noptimizer",
        right=0,
        meaning="as before, with a fused optimizer",
    ),
    Question(
        probe="ruined",
        title="after one infinite\nloss",
        right=0,
        meaning="share of the weights that are not numbers, without a scaler",
    ),
)


@final
@dataclass(frozen=True, slots=True)
class Finding:
    """What came out: a value, or how the training ended."""

    value: float | None
    end: str = ""


Findings = Mapping[str, Sequence[Finding]]


def found(peers: Sequence[str]) -> dict[str, list[Finding]]:
    """The answers of ours, of a loop by hand and of the peers to all questions."""
    return {name: _answers(name) for name in ("ours", "by hand", *peers)}


def rows(findings: Findings) -> list[Row]:
    """A row for every subject and question, nothing of it promised: it is there to be compared."""
    return [
        _row(f"{name}: {question.title.replace(chr(10), ' ')}", question, finding)
        for name, of_subject in findings.items()
        for question, finding in zip(QUESTIONS, of_subject, strict=True)
    ]


def show(findings: Findings) -> None:
    """The same as a table."""
    table = Table(title="Correctness, each found by training")
    table.add_column("")
    for question in QUESTIONS:
        table.add_column(question.title, justify="right")
    for name, of_subject in findings.items():
        cells = [_cell(question, finding) for question, finding in zip(QUESTIONS, of_subject, strict=True)]
        table.add_row(name, *cells)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def _answers(name: str) -> list[Finding]:
    try:
        python = python_of(name)
    except NoEnvironmentError as error:
        return [Finding(None, str(error))] * len(QUESTIONS)
    return [
        _resumed(python, name) if question.probe == "saved" else _asked(python, name, question.probe)
        for question in QUESTIONS
    ]


def _asked(python: Path, name: str, probe: str) -> Finding:
    """A process for every probe, for some end with it."""
    try:
        with Respondent(python, name) as respondent:
            return Finding(float(respondent.ask(probe)))
    except GoneError as error:
        return Finding(None, str(error))


def _resumed(python: Path, name: str) -> Finding:
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as killed:
        try:
            expected = _weights(python, name, whole, None)
            _kill(python, name, killed)
            resumed = _weights(python, name, killed, None)
        except GoneError as error:
            return Finding(None, str(error))
    return Finding(math.dist(resumed, expected) / math.hypot(*expected))


def _weights(python: Path, name: str, folder: str, die_after: int | None) -> Any:
    with Respondent(python, name) as respondent:
        return respondent.ask("saved", folder=folder, die_after=die_after)


def _kill(python: Path, name: str, folder: str) -> None:
    """Train until the process kills itself.

    Raises:
        GoneError: It ended in another way.
    """
    try:
        _weights(python, name, folder, DIES_AFTER)
    except GoneError as error:
        if "signal 9" not in str(error):
            raise


def _row(name: str, question: Question, finding: Finding) -> Row:
    if finding.value is None:
        return Row(name=name, value=None, reach="", ok=None, detail=f"no weights to compare: {finding.end}")
    return shown(name, finding.value, detail=f"right: {question.right:g}; {question.meaning}")


def _cell(question: Question, finding: Finding) -> str:
    if finding.value is None:
        return f"[red]{finding.end.partition(':')[0].rpartition('.')[2][:18]}[/red]"
    right = abs(finding.value - question.right) <= RIGHT
    return f"[green]right[/green] ({finding.value:.1g})" if right else f"[red]{finding.value:.2g}[/red]"
