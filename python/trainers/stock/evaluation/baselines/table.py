"""Which baselines stand beside a model: those that the target and the installed packages allow."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from predictor.networks import TargetKind
from trainers.stock.evaluation.baselines import boosted, garch, ridge
from trainers.stock.evaluation.baselines.baseline import Baseline, Fit
from trainers.stock.evaluation.baselines.empirical import EMPIRICAL
from trainers.stock.evaluation.baselines.har import HAR
from trainers.stock.evaluation.baselines.naive import naive
from trainers.stock.evaluation.baselines.scaled import RELATIVE_HAR, SCALED
from trainers.stock.evaluation.baselines.unconditional import UNCONDITIONAL

QUICK_SYMBOLS: Final = 20
"""Symbols up to which GARCH is quick: it fits one model a symbol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Baselines to fit, one after the other so that only one's forecasts need be held, and what is left out."""

    baselines: tuple[Baseline, ...]
    notes: tuple[str, ...]
    """Which are left out, and why."""

    @property
    def rows(self) -> Iterator[tuple[Baseline, Fit]]:
        """Each baseline in each of the ways in which it stands beside a model."""
        return ((baseline, fit) for baseline in self.baselines for fit in baseline.fits)


def all_baselines(kind: TargetKind) -> Plan:
    """All of this target whose packages are installed."""
    return _joined(kind, (_garch(), _ridge(), _boosted()))


def quick_baselines(kind: TargetKind, symbols: int) -> Plan:
    """Those that take no longer than a few seconds for so many symbols; a training scores beside them."""
    slow = Plan(baselines=(), notes=(_slow(boosted.BOOSTED),))
    garch_plan = _garch() if symbols <= QUICK_SYMBOLS else Plan(baselines=(), notes=(_slow(garch.GARCH),))
    return _joined(kind, (garch_plan, _ridge(), slow))


def _joined(kind: TargetKind, plans: tuple[Plan, ...]) -> Plan:
    ready = (naive(kind), UNCONDITIONAL, SCALED, EMPIRICAL, HAR, RELATIVE_HAR)
    more = tuple(baseline for plan in plans for baseline in plan.baselines)
    return Plan(baselines=ready + more, notes=tuple(note for plan in plans for note in plan.notes))


def _garch() -> Plan:
    return _needing("arch", garch.GARCH, installed=garch.is_installed())


def _ridge() -> Plan:
    return _needing("scikit-learn", ridge.RIDGE, installed=ridge.is_installed())


def _boosted() -> Plan:
    return _needing("lightgbm", boosted.BOOSTED, installed=boosted.is_installed())


def _needing(package: str, baseline: Baseline, *, installed: bool) -> Plan:
    if installed:
        return Plan(baselines=(baseline,), notes=())
    note = f"{baseline.name} is left out, because the package {package} is not installed"
    return Plan(baselines=(), notes=(f"{note}: pip install 'quantra[baselines]'",))


def _slow(baseline: Baseline) -> str:
    return f"{baseline.name} is left out of a training's scores, because it takes long; quantra evaluate has it"
