"""Requests to a model: instances of bars or feature windows, and queries for explanations."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from predictor.bars import BarPanel, Frame
from predictor.covariates import NO_COVARIATES, Covariates
from predictor.errors import CovariatesError, InvalidInputError, QuantraError
from predictor.forecast import Detail, TargetPoint
from predictor.price_paths import PathQuestions


class GapPolicy(StrEnum):
    """How to treat exchange sessions that are missing from the bars."""

    REFUSE = "refuse"
    """Raise SessionGapError, which names them."""
    MASK = "mask"
    """Insert them as sessions without a bar."""
    IGNORE = "ignore"
    """Treat the bars as consecutive."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeatureWindow:
    """Precomputed network inputs for S symbols, of the feature schema `schema_hash`."""

    symbols: tuple[str, ...]
    observed: NDArray[np.float32]
    """[S, encoder_length, F] scaled features; 0 where `mask` is False."""
    known: NDArray[np.float32]
    """[S, encoder_length + future_length, K]"""
    static: NDArray[np.float32]
    """[S, C]"""
    mask: NDArray[np.bool_]
    """[S, encoder_length, F] True where the cell is known."""
    location: NDArray[np.float64]
    """[S] the window's level of the target; [S, H], one per horizon, for a model with fitted levels."""
    scale: NDArray[np.float64]
    """The window's volatility, positive, in the shape of `location`."""
    schema_hash: str
    anchor_price: NDArray[np.float64] | None = None
    """[S] last close; None = forecast without prices."""
    as_of_session: date | None = None
    """Session of the last row; None = unknown."""
    features: tuple[str, ...] = ()
    """Names of the F observed features, in order; empty = those of the schema."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Instance:
    """One panel to forecast, of bars or feature windows, and how strictly its calendar is checked."""

    input: BarPanel | FeatureWindow
    covariates: Covariates = NO_COVARIATES
    """Covariates of the bars; feature windows already contain theirs."""
    request_id: str = ""
    allow_incomplete_last_bar: bool = False
    accept_suspect_bars: bool = False
    """Whether to read bars that contradict the history of their symbol; each becomes a warning."""
    gap_policy: GapPolicy = GapPolicy.REFUSE
    max_age_sessions: int | None = None
    """Most sessions of the model's calendar that may have closed since the last bar; None = unlimited."""
    symbol_errors: Mapping[str, QuantraError] = field(default_factory=dict[str, QuantraError])
    """The error of each symbol that was sent with an impossible bar; the panel has no bars of it."""

    def __post_init__(self) -> None:
        if self.max_age_sessions is not None and self.max_age_sessions < 0:
            raise InvalidInputError(f"max_age_sessions is {self.max_age_sessions}, but must be 0 or more")
        if self.covariates is not NO_COVARIATES and self.covariates.names and not isinstance(self.input, BarPanel):
            raise CovariatesError(
                "covariates can only be sent with bars; feature windows hold their own static and known inputs"
            )


def limit_age(instance: Instance, max_age: int) -> Instance:
    """Lower an instance's `max_age_sessions` to `most`, unless it is lower already."""
    age = instance.max_age_sessions
    return instance if age is not None and age <= max_age else replace(instance, max_age_sessions=max_age)


InstanceLike = BarPanel | FeatureWindow | Instance | Frame
"""What a caller may pass as one instance; `BarPanel.of` reads a table in memory."""
InstanceOrError = Instance | QuantraError
"""An instance, or the error of one that cannot be decoded."""


def to_instance(source: InstanceLike, covariates: Covariates | None = None) -> Instance:
    """Wrap a panel, a table of bars or feature windows in an instance; an instance is returned unchanged.

    Raises:
        CovariatesError: `covariates` is passed with an instance or with feature windows, which hold their own.
        BarsError: the table does not hold bars.
    """
    if not isinstance(source, Instance | BarPanel | FeatureWindow):
        source = BarPanel.of(source)
    if not isinstance(source, Instance):
        return Instance(input=source, covariates=covariates or NO_COVARIATES)
    if covariates is not None:
        raise CovariatesError("pass covariates inside the instance: Instance(input=bars, covariates=...)")
    return source


def require_bars(instance: Instance, purpose: str) -> BarPanel:
    """Return the bars of an instance; raises InvalidInputError, which names the purpose, if it has feature windows."""
    if not isinstance(instance.input, BarPanel):
        raise InvalidInputError(f"{purpose} need bars, but the input has feature windows; give bars with their past")
    return instance.input


INTEGRATED_GRADIENTS = "integrated-gradients"
TREE_SHAP = "tree-shap"
SHAPLEY = "shapley"
"""Of every model of features, so that ensembles of different kinds have a common method."""
OCCLUSION = "occlusion"
"""Of every model; the only method whose contributions do not add up."""
EXPLAIN_METHODS = (INTEGRATED_GRADIENTS, TREE_SHAP, SHAPLEY, OCCLUSION)

MIN_TOLERANCE: Final = 1e-4
"""Smallest allowed tolerance; a smaller completeness gap is float32 rounding."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PathQuery:
    """A request for price paths, and for answers from them."""

    instance: Instance
    """Bars with their past."""
    paths: int = 1000
    seed: int = 0
    questions: PathQuestions = field(default_factory=PathQuestions)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExplanationQuery:
    """A request to explain a forecast."""

    instance: Instance
    targets: tuple[TargetPoint, ...] = ()
    """Empty = every horizon, at the quantile nearest to 0.5."""
    method: str = ""
    """Empty = the method of the model."""
    detail: Detail = Detail.FEATURES
    tolerance: float = 0.01
    """Largest relative completeness gap that counts as converged, in [MIN_TOLERANCE, 1)."""
    symbols: tuple[str, ...] = ()
    """Symbols to explain, in this order; empty = all. The model reads the bars of all symbols in any case."""


def create_importance_query(
    bars: InstanceLike, horizon: int, quantile: float, covariates: Covariates | None
) -> ExplanationQuery:
    """Create a query for one quantile of one horizon; raises as `to_instance`."""
    return ExplanationQuery(instance=to_instance(bars, covariates), targets=(TargetPoint(horizon, quantile),))
