"""A published model by the parts that an artifact needs."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from predictor.features import FeatureSet
from predictor.networks import NetworkConfig, NetworkKind
from trainers.stock.adoption.source_folder import SourceFolder


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishedModel:
    """The verified contents of a model's folders, in Quantra's terms."""

    source: SourceFolder
    tokenizer: SourceFolder | None = None
    architecture: str
    """The published class."""
    packages: tuple[str, ...]
    """The packages that run it, the first of which has its classes; empty if Quantra has them."""
    kind: NetworkKind
    config: NetworkConfig
    weights: Mapping[str, Tensor]
    """By their names in the network of the kind."""
    features: FeatureSet
    largest: float
    """Bound of the features' values."""
    longest: int
    """Sessions that it can read."""
