"""Baseline forecasts without a network.

They forecast quantiles [N, H, Q] in the target's unit for the same windows as the network and with the same
information. Most baselines appear twice: fitted and calibrated on the same parts as the network, and refitted on all
that it has seen.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from predictor.networks import TargetKind
from trainers.stock.evaluation.baselines.baseline import (
    BaselineModel,
    FitScope,
    FittedBaseline,
    InformationSet,
    MeasuredWindows,
    NoForecastError,
    ReplacedSymbols,
)
from trainers.stock.evaluation.baselines.garch import GARCH
from trainers.stock.evaluation.baselines.quantiles import (
    EMPIRICAL,
    LAST_VALUE,
    NAIVE,
    OWN_SCALE,
    RELATIVE_HAR,
    SCALED,
    UNCONDITIONAL,
    ZERO_RETURN,
)
from trainers.stock.evaluation.baselines.regression import BOOSTED, HAR, RIDGE

__all__ = [
    "NAIVE",
    "OWN_SCALE",
    "SCALED",
    "BaselineModel",
    "BaselinePlan",
    "FitScope",
    "FittedBaseline",
    "InformationSet",
    "MeasuredWindows",
    "NoForecastError",
    "ReplacedSymbols",
    "all_baselines",
    "quick_baselines",
]


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
"""All baselines; add new ones here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselinePlan:
    """The baselines to compare with a model."""

    baselines: tuple[BaselineModel, ...]
    notes: tuple[str, ...]
    """Which baselines are left out, and why."""

    @property
    def rows(self) -> Iterator[tuple[BaselineModel, FitScope]]:
        """Each baseline with each of its fits."""
        return ((baseline, fit) for baseline in self.baselines for fit in baseline.fits)


def all_baselines(kind: TargetKind) -> BaselinePlan:
    """All baselines of this target whose packages are installed."""
    return _plan_baselines(kind, lambda _baseline: "")


def quick_baselines(kind: TargetKind, symbols: int) -> BaselinePlan:
    """The baselines that take at most a few seconds for so many symbols, for the scores after a training run."""

    def find_reason(baseline: BaselineModel) -> str:
        is_quick = symbols <= baseline.max_quick_symbols
        return "" if is_quick else " of a training run's scores because it is slow; quantra evaluate includes it"

    return _plan_baselines(kind, find_reason)


def _plan_baselines(kind: TargetKind, find_reason: Callable[[BaselineModel], str]) -> BaselinePlan:
    """Select the baselines of this target without a reason to leave them out, whose packages are installed."""
    selected: list[BaselineModel] = []
    notes: list[str] = []
    for baseline in BASELINES:
        if kind not in baseline.kinds:
            continue
        reason, package = find_reason(baseline), baseline.package
        if not reason and package and find_spec(baseline.module or package) is None:
            reason = f", because the package {package} is not installed: pip install 'quantra[baselines]'"
        if reason:
            notes.append(f"{baseline.name} is left out{reason}")
        else:
            selected.append(baseline)
    return BaselinePlan(baselines=tuple(selected), notes=tuple(notes))
