"""Which baselines stand beside a model: those that the target and the installed packages allow."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from trainers.stock.evaluation.baselines import boosted, garch, ridge
from trainers.stock.evaluation.baselines.case import Baseline, Case
from trainers.stock.evaluation.baselines.empirical import empirical
from trainers.stock.evaluation.baselines.har import har
from trainers.stock.evaluation.baselines.naive import naive
from trainers.stock.evaluation.baselines.scaled import scaled
from trainers.stock.evaluation.baselines.unconditional import unconditional

QUICK_SYMBOLS: Final = 20
"""Symbols up to which GARCH is quick: it fits one model a symbol."""

Maker = Callable[[Case], Baseline]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Baselines to make, one after the other so that only one's forecasts need be held, and what is left out."""

    makers: tuple[Maker, ...]
    notes: tuple[str, ...]
    """Which are left out, and why."""


def all_baselines() -> Plan:
    """All whose packages are installed."""
    plans = (_garch(), _ridge(), _boosted())
    return _joined(plans)


def quick_baselines(symbols: int) -> Plan:
    """Those that take no longer than a few seconds for so many symbols; a training scores beside them."""
    slow = Plan(makers=(), notes=(_slow(boosted.NAME),))
    garch_plan = _garch() if symbols <= QUICK_SYMBOLS else Plan(makers=(), notes=(_slow(garch.NAME),))
    return _joined((garch_plan, _ridge(), slow))


def _joined(plans: tuple[Plan, ...]) -> Plan:
    ready: tuple[Maker, ...] = (naive, unconditional, scaled, empirical, har)
    makers = tuple(maker for plan in plans for maker in plan.makers)
    return Plan(makers=ready + makers, notes=tuple(note for plan in plans for note in plan.notes))


def _garch() -> Plan:
    return _needing("arch", garch.NAME, garch.garch, installed=garch.is_installed())


def _ridge() -> Plan:
    return _needing("scikit-learn", ridge.NAME, ridge.ridge, installed=ridge.is_installed())


def _boosted() -> Plan:
    return _needing("lightgbm", boosted.NAME, boosted.boosted, installed=boosted.is_installed())


def _needing(package: str, name: str, make: Maker, *, installed: bool) -> Plan:
    if installed:
        return Plan(makers=(make,), notes=())
    note = f"{name} is left out, because the package {package} is not installed: pip install 'quantra[baselines]'"
    return Plan(makers=(), notes=(note,))


def _slow(name: str) -> str:
    return f"{name} is left out of a training's scores, because it takes long; quantra evaluate has it"
