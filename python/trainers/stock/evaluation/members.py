"""What all members say about the same windows."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from predictor.artifact import EnsembleManifest
from predictor.bars import BarPanel
from predictor.covariates import CovariateSource
from predictor.model import Model, joint_quantiles, output_map, ranks_of
from trainers.stock.data import History, Windows
from trainers.stock.evaluation.forecasts import Forecasts, forecasts_of
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
        readings = [model.pipeline.reading for model in models.values()]
        histories: dict[str, History] = {}
        for name, model in models.items():
            first = list(models)[readings.index(model.pipeline.reading)]
            histories[name] = histories[first] if first in histories else History(bars, model.pipeline, covariates)
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

    def forecasts(self, windows: Windows) -> dict[str, Forecasts]:
        """What each member says of the windows."""
        return {
            name: forecasts_of(
                model.engine, output_map(model.manifest), self.histories[name], windows, model.manifest.universe
            )
            for name, model in self.models.items()
        }

    def scale(self, windows: Windows) -> FloatArray:
        """[N, H] mean of the members' window volatilities."""
        return np.mean([history.level(windows)[1].numpy() for history in self.histories.values()], axis=0)

    def joined(self, manifest: EnsembleManifest, windows: Windows, forecasts: Mapping[str, Forecasts]) -> Forecasts:
        """What the ensemble of this manifest forecasts, before and after its own offsets."""
        each = [one.calibrated for one in forecasts.values()]
        return Forecasts(
            raw=np.mean(each, axis=0),
            calibrated=joint_quantiles(manifest, each, self.scale(windows)),
            scores=_joint_scores(windows, [one.scores for one in forecasts.values()]),
        )


def _joint_scores(windows: Windows, members: Sequence[FloatArray | None]) -> FloatArray | None:
    """[N, H] minus the mean of the members' ranks among the windows of a day; None if a member does not rank."""
    given = [scores for scores in members if scores is not None]
    if len(given) < len(members):
        return None
    _, first = np.unique(windows.positions, return_index=True)
    ranks = [np.concatenate([ranks_of(day) for day in np.split(scores, first[1:])]) for scores in given]
    return -np.mean(ranks, axis=0)
