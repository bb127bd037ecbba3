"""What is known of a served model: what it reads, what it forecasts, where it came from."""

from dataclasses import dataclass
from enum import StrEnum

from predictor.skill import Skill


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureInfo:
    """One feature: its name, its expression in the feature language, what it means and its unit."""

    name: str
    expression: str
    meaning: str
    unit: str


class CovariateGroup(StrEnum):
    """How a model reads a covariate."""

    OBSERVED = "observed"
    """Up to the last bar."""
    KNOWN = "known"
    """Of the sessions ahead too."""
    STATIC = "static"
    """One value per symbol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CovariateInfo:
    """What a caller has to send beside the bars."""

    name: str
    group: CovariateGroup
    categories: tuple[str, ...] = ()
    """Texts that the model knows, of a static covariate that is a text; empty = it is a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """One version of a model, as ListModels and GetModel give it."""

    name: str
    version: int
    aliases: tuple[str, ...]
    is_default: bool
    """Whether the plain name means this version."""
    kind: str
    """The network, for example `lstm`."""
    observed_features: tuple[FeatureInfo, ...]
    known_features: tuple[FeatureInfo, ...]
    static_features: tuple[FeatureInfo, ...]
    covariates: tuple[CovariateInfo, ...]
    """What is to be sent beside the bars."""
    schema_hash: str
    encoder_length: int
    """Sessions that the network reads."""
    lookback: int
    """Bars that the features look back on, the bar itself included."""
    bars_needed: int
    future_length: int
    """Sessions after the last bar that known features cover."""
    horizons: tuple[int, ...]
    quantiles: tuple[float, ...]
    lag: int
    target_kind: str
    calendar: str
    calendar_ends: int
    is_panel_model: bool
    explain_methods: tuple[str, ...]
    weights_hash: str
    card_json: str
    """JSON: data, splits, training recipe, held-out scores beside the baselines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelListing:
    """One version of a model, as a list of models tells it.

    Attributes:
        name: of the model.
        version: of it.
        aliases: that name this version.
        kind: the network, or `ensemble`; empty where the manifest cannot be read.
        skill: how it did on held-out days; None if its card does not say.
        trained_to: last session that a label of training, selection or calibration touched, yyyymmdd; 0 if unknown.
        calendar_ends: last session that it can be asked about, yyyymmdd; 0 if unknown.
        size: of all its files, in bytes; None of a server's.
        problem: why it cannot be read; empty if it can.
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
