"""What a stock model is made from, beside its recipe."""

from collections.abc import Mapping
from dataclasses import dataclass

from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.covariates import CovariateSource
from predictor.features import FeatureSet
from predictor.networks import Edges
from trainers.stock.card import bars_hash, features_identity
from trainers.stock.data import NO_SOURCE
from trainers.stock.edges import RETURNS
from trainers.stock.parent import Parent


@dataclass(frozen=True, slots=True, eq=False)
class Material:
    """Bars, what is read of them, and what stands beside them."""

    bars: BarPanel
    """A long history."""
    features: FeatureSet
    """What the network reads."""
    covariates: CovariateSource = NO_SOURCE
    """Files of what the features read beside the bars, and of facts of each symbol."""
    edges: Edges | None = None
    """Of a graph of the bars' symbols, in their order; None takes them from the training part's returns, or where the
    parent's were given, those among its own."""
    parent: Parent | None = None
    """The artifact whose weights a training starts from; None for fresh ones."""

    def identity(self) -> Mapping[str, Json]:
        """What a stopped training or search knows its material by."""
        return {
            "bars": bars_hash(self.bars),
            "covariates": self.covariates.digest(),
            "features": features_identity(self.features),
            "edges": RETURNS if self.edges is None else self.edges.digest,
            **({} if self.parent is None else self.parent.identity()),
        }
