"""Time of a step in other training libraries, measured with ours in the same process."""

import statistics
from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks.environments import TRAINERS, NoEnvironmentError, python_of
from benchmarks.report import Row, at_most, shown, unmeasured
from benchmarks.respondent import GoneError, Respondent
from benchmarks.training.job import Kind
from benchmarks.training.steps import KINDS, STEPS, TITLES, WARM, ratio

ANSWERING = "benchmarks.training.answering"
FASTER = 1.0


def rows(peers: Sequence[str], *, quick: bool) -> list[Row]:
    """Ratios ours / peer and peer / plain loop for every peer and both networks."""
    found: dict[tuple[str, Kind], list[Row]] = {}
    with ExitStack() as stack:
        respondents: dict[str, Respondent] = {}
        for peer in peers:
            try:
                respondents[peer] = stack.enter_context(Respondent(python_of(peer), ANSWERING, peer))
            except NoEnvironmentError as error:
                found |= {(peer, kind): [_missing(peer, kind, str(error))] for kind in KINDS}
        for kind in KINDS:
            measured = _rounds(respondents, kind, quick=quick)
            found |= {(peer, kind): _rows_of(peer, kind, measured[peer], quick=quick) for peer in respondents}
    return [row for kind in KINDS for peer in peers for row in found[peer, kind]]


def _rounds(respondents: dict[str, Respondent], kind: Kind, *, quick: bool) -> dict[str, dict[str, list[float]] | str]:
    """Seconds per step of each subject in every round, or the error of a peer that failed."""
    measured: dict[str, dict[str, list[float]] | str] = {peer: {} for peer in respondents}
    steps = STEPS[kind] // (4 if quick else 1)
    for _ in range(2 if quick else 9):
        for peer, respondent in respondents.items():
            so_far = measured[peer]
            if isinstance(so_far, str):
                continue
            try:
                seconds = respondent.ask(kind=kind, warm=WARM, steps=steps)
            except GoneError as error:
                measured[peer] = str(error)
                continue
            for name, value in seconds.items():
                so_far.setdefault(name, []).append(value)
    return measured


def _rows_of(peer: str, kind: Kind, measured: dict[str, list[float]] | str, *, quick: bool) -> list[Row]:
    if isinstance(measured, str):
        return [_missing(peer, kind, measured)]
    versions = ", ".join(TRAINERS[peer])
    microseconds = 1e6 * statistics.median(measured[peer])
    return [
        at_most(
            _name(peer, kind),
            ratio(measured, "ours", peer),
            FASTER,
            detail=f"{versions}; the same process, optimizer and DataLoader; {microseconds:.0f} us per step",
            judged=not quick,
        ),
        shown(f"{TITLES[kind]}: {peer} / plain loop", ratio(measured, peer, "by hand"), detail=versions),
    ]


def _missing(peer: str, kind: Kind, why: str) -> Row:
    return unmeasured(_name(peer, kind), why, reach=f"<= {FASTER:g}")


def _name(peer: str, kind: Kind) -> str:
    return f"{TITLES[kind]}: ours / {peer}"
