"""What a stock model is made from, beside its recipe."""

from collections.abc import Mapping
from dataclasses import dataclass

from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.covariates import CovariateSource
from predictor.features import FeatureSet
from predictor.networks import Edges
from trainers.stock.card import bars_hash
from trainers.stock.data import NO_SOURCE
from trainers.stock.edges import RETURNS


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
    """Of a graph of the bars' symbols, in their order; None takes them from the training part's returns."""

    def identity(self) -> Mapping[str, Json]:
        """What a stopped training or search knows its material by."""
        return {
            "bars": bars_hash(self.bars),
            "covariates": self.covariates.digest(),
            "features": features_identity(self.features),
            "edges": RETURNS if self.edges is None else self.edges.digest,
        }


def features_identity(features: FeatureSet) -> dict[str, Json]:
    """What a feature set is known by: names and expressions in their order, which decides on the weights too."""
    return {
        "observed": [[feature.name, feature.expression] for feature in features.observed],
        "known": [[feature.name, feature.expression] for feature in features.known],
    }
