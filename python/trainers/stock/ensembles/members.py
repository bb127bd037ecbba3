"""What all members say about the same windows."""

from collections.abc import Mapping
from functools import reduce
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from predictor.artifact import EnsembleManifest
from predictor.bars import BarPanel
from predictor.covariates import CovariateSource
from predictor.model import Model, joint_quantiles, output_map
from trainers.stock.data import History, Windows
from trainers.stock.evaluation.forecasts import forecasts_of
from trainers.stock.splits import Part

FloatArray = NDArray[np.float64]


@final
class Members:
    """Models of one ensemble, each with the history that its own pipeline has encoded."""

    def __init__(self, models: Mapping[str, Model], histories: Mapping[str, History]) -> None:
        """Receive the parts, both by the members' names."""
        self.models = models
        self.histories = histories

    @classmethod
    def over(cls, bars: BarPanel, models: Mapping[str, Model], covariates: CovariateSource) -> Self:
        """Encode the bars for each member, once for those that read the same."""
        encoded: list[History] = []
        histories: dict[str, History] = {}
        for name, model in models.items():
            alike = [history for history in encoded if _reads_alike(history, model)]
            histories[name] = alike[0] if alike else History(bars, model.pipeline, covariates)
            encoded.append(histories[name])
        return cls(models, histories)

    @property
    def first(self) -> History:
        """A history for what is the same in all of them: bars, labels, outcomes."""
        return next(iter(self.histories.values()))

    def windows(self, part: Part) -> Windows:
        """The windows of a part that every member can forecast, by date, then symbol.

        Raises:
            ConfigurationError: a member has none.
        """
        stocks = len(self.first.bars.symbols)
        each = [history.windows(part) for history in self.histories.values()]
        keys = reduce(np.intersect1d, [windows.positions * stocks + windows.symbols for windows in each])
        return Windows(symbols=keys % stocks, positions=keys // stocks)

    def forecasts(self, windows: Windows) -> dict[str, FloatArray]:
        """[N, H, Q] each member's calibrated quantiles, in the target's unit."""
        return {
            name: forecasts_of(
                model.engine, output_map(model.manifest), self.histories[name], windows, model.manifest.universe
            ).calibrated
            for name, model in self.models.items()
        }

    def scale(self, windows: Windows) -> FloatArray:
        """[N] mean of the members' window volatilities."""
        return np.mean([history.level(windows)[1].numpy() for history in self.histories.values()], axis=0)

    def joint(self, manifest: EnsembleManifest, windows: Windows, forecasts: Mapping[str, FloatArray]) -> FloatArray:
        """[N, H, Q] what the ensemble of this manifest forecasts."""
        return joint_quantiles(manifest, list(forecasts.values()), self.scale(windows))


def _reads_alike(history: History, model: Model) -> bool:
    have, want = history.pipeline, model.pipeline
    return (
        have.features.schema_hash == want.features.schema_hash
        and have.encoder_length == want.encoder_length
        and have.normaliser == want.normaliser
        and have.calendar == want.calendar
    )
