"""The table of baselines, and which are compared with a model: those that target and installed packages allow."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from predictor.networks import TargetKind
from trainers.stock.evaluation.baselines.baseline import BaselineModel, Fit
from trainers.stock.evaluation.baselines.garch import GARCH
from trainers.stock.evaluation.baselines.har import HAR
from trainers.stock.evaluation.baselines.quantiles import (
    EMPIRICAL,
    LAST_VALUE,
    RELATIVE_HAR,
    SCALED,
    UNCONDITIONAL,
    ZERO_RETURN,
)
from trainers.stock.evaluation.baselines.regression import BOOSTED, RIDGE

BASELINES: Final = (
    ZERO_RETURN,
    LAST_VALUE,
    UNCONDITIONAL,
    SCALED,
    EMPIRICAL,
    HAR,
    RELATIVE_HAR,
    GARCH,
    RIDGE,
    BOOSTED,
)
"""All of them; a new one is written in a file of its own, and gets a line here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselinePlan:
    """Baselines to fit, one at a time so that only one's forecasts are in memory, and what is left out."""

    baselines: tuple[BaselineModel, ...]
    notes: tuple[str, ...]
    """Which are left out, and why."""

    @property
    def rows(self) -> Iterator[tuple[BaselineModel, Fit]]:
        """Each baseline in each of the ways in which it is compared with a model."""
        return ((baseline, fit) for baseline in self.baselines for fit in baseline.fits)


def all_baselines(kind: TargetKind) -> BaselinePlan:
    """All of this target whose packages are installed."""
    return _plan({baseline: _missing(baseline) for baseline in _of_kind(kind)})


def quick_baselines(kind: TargetKind, symbols: int) -> BaselinePlan:
    """Those that take no longer than a few seconds for so many symbols; a training is scored against them."""
    return _plan({baseline: _slow(baseline, symbols) or _missing(baseline) for baseline in _of_kind(kind)})


def _of_kind(kind: TargetKind) -> Iterator[BaselineModel]:
    return (baseline for baseline in BASELINES if kind in baseline.kinds)


def _plan(left_out: dict[BaselineModel, str]) -> BaselinePlan:
    """From why each is left out; empty where it is not."""
    return BaselinePlan(
        baselines=tuple(baseline for baseline, why in left_out.items() if not why),
        notes=tuple(f"{baseline.name} is left out{why}" for baseline, why in left_out.items() if why),
    )


def _missing(baseline: BaselineModel) -> str:
    package = baseline.package
    if package is None or find_spec(package.module) is not None:
        return ""
    return f", because the package {package.name} is not installed: pip install 'quantra[baselines]'"


def _slow(baseline: BaselineModel, symbols: int) -> str:
    if symbols <= baseline.most_quick_symbols:
        return ""
    return " of a training's scores, because it takes long; quantra evaluate has it"
