"""Baseline forecasts without a network.

They forecast quantiles [N, H, Q] in the target's unit for the same windows as the network and with the same
information. Most baselines appear twice: fitted and calibrated on the same parts as the network, and refitted on all
that it has seen.
"""

from collections.abc import Iterator
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
    return _plan({baseline: _missing(baseline) for baseline in _of_kind(kind)})


def quick_baselines(kind: TargetKind, symbols: int) -> BaselinePlan:
    """The baselines that take at most a few seconds for so many symbols, for the scores at the end of a training."""
    return _plan({baseline: _slow(baseline, symbols) or _missing(baseline) for baseline in _of_kind(kind)})


def _of_kind(kind: TargetKind) -> Iterator[BaselineModel]:
    return (baseline for baseline in BASELINES if kind in baseline.kinds)


def _plan(left_out: dict[BaselineModel, str]) -> BaselinePlan:
    """Select the baselines with an empty reason; the others are left out."""
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
    return " of a training's scores because it is slow; quantra evaluate includes it"
