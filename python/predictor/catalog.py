"""Descriptions of served models: their inputs, targets and origin."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from predictor.skill import Skill

EngineName = Literal["eager", "onnxruntime"]
"""What computes forecasts: torch, or ONNX Runtime for the batch sizes at which it is faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureInfo:
    """A feature of a model; `expression` is in the feature language."""

    name: str
    expression: str
    meaning: str
    unit: str


class CovariateGroup(StrEnum):
    """The sessions for which a model reads a covariate."""

    OBSERVED = "observed"
    """Up to the last bar."""
    KNOWN = "known"
    """Sessions after the last bar too."""
    STATIC = "static"
    """One value per symbol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CovariateInfo:
    """A covariate that a request must contain in addition to the bars."""

    name: str
    group: CovariateGroup
    categories: tuple[str, ...] = ()
    """Values that the model knows of a categorical static covariate; empty = numeric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """One version of a model, as returned by ListModels and GetModel."""

    name: str
    version: int
    aliases: tuple[str, ...]
    is_default: bool
    """Whether the model's name without a version selects this version."""
    kind: str
    """The network's kind, for example `lstm`."""
    observed_features: tuple[FeatureInfo, ...]
    known_features: tuple[FeatureInfo, ...]
    static_features: tuple[FeatureInfo, ...]
    covariates: tuple[CovariateInfo, ...]
    """Covariates that a request must contain."""
    schema_hash: str
    encoder_length: int
    """Sessions that the network reads."""
    lookback: int
    """Bars that one row of inputs depends on, the row's own bar included."""
    bars_needed: int
    future_length: int
    """Sessions after the last bar that known features cover."""
    horizons: tuple[int, ...]
    is_scaled_per_horizon: bool
    """Whether the location and scale of a window have a value per horizon, instead of one per symbol."""
    quantiles: tuple[float, ...]
    lag: int
    target_kind: str
    calendar: str
    calendar_ends: int
    is_panel_model: bool
    explain_methods: tuple[str, ...]
    weights_hash: str
    card_json: str
    """JSON: data, splits, training settings, held-out scores of the model and the baselines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelListing:
    """One version of a model in a list of models.

    Attributes:
        name: the model's name.
        version: the version's number.
        aliases: aliases of this version.
        kind: the network's kind, or `ensemble`; empty if the manifest is unreadable.
        skill: the skill on held-out days; None if the card has none.
        trained_to: last session that a label of training, selection or calibration covers, yyyymmdd; 0 if unknown.
        calendar_ends: last session of its calendar, yyyymmdd; 0 if unknown.
        size: total size of its files in bytes; None for a model of a server.
        problem: the reason why it is unreadable; empty if it is readable.
    """

    name: str
    version: int
    aliases: tuple[str, ...] = ()
    kind: str = ""
    skill: Skill | None = None
    trained_to: int = 0
    calendar_ends: int = 0
    size: int | None = None
    problem: str = ""
