"""A model's information, and how baselines are fitted on the same."""

from dataclasses import dataclass
from typing import Self, assert_never

import numpy as np
import torch

from predictor.networks import anchor_index, uncrossed
from trainers.stock.conformal import calibrate
from trainers.stock.data import History
from trainers.stock.evaluation.baselines.asked import Asked
from trainers.stock.evaluation.baselines.baseline import Baseline, Fit, Fitted, FloatArray
from trainers.stock.evaluation.baselines.sample import Sample
from trainers.stock.splits import Part, Splits


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """What a model has seen of a history, which its baselines may therefore see too."""

    history: History
    """Inputs and labels."""
    train: Part
    calibration: Asked
    """The windows of the calibration part."""
    seen: Part
    """Training, selection and calibration part as one, with the windows whose targets straddle two of them."""
    levels: tuple[float, ...]
    """[Q] quantiles that are forecast."""

    @classmethod
    def of(cls, history: History, splits: Splits, seen_until: int, levels: tuple[float, ...]) -> Self:
        """The information of a model that was made from these parts.

        Args:
            history: inputs and labels.
            splits: of a model, or those that an ensemble's members share.
            seen_until: the last session, yyyymmdd, that a label touched which the model or any member has seen.
            levels: [Q]
        """
        return cls(
            history=history,
            train=splits.train,
            calibration=Asked.of(history, history.windows(splits.calibration)),
            seen=Part("seen", splits.train.first, seen_until),
            levels=levels,
        )

    def fitted(self, baseline: Baseline, fit: Fit) -> Fitted:
        """A baseline, fitted in one of the ways in which it stands beside the model.

        Raises:
            NoForecastError: it cannot be fitted.
            ConfigurationError: a part holds no window, or knows no outcome of a horizon.
        """
        match fit:
            case Fit.AS_IS:
                return baseline.estimator(self._sample(self.train))
            case Fit.CALIBRATED:
                return self._moved(baseline.estimator(self._sample(self.train)))
            case Fit.REFITTED:
                return baseline.estimator(self._sample(self.seen))
            case _:
                assert_never(fit)

    def _sample(self, part: Part) -> Sample:
        return Sample(history=self.history, part=part, levels=self.levels)

    def _moved(self, plain: Fitted) -> Fitted:
        """The same quantiles, each moved as a model's are: by one offset a horizon, in units of the window."""
        offsets = self._offsets(plain)
        anchor = anchor_index(self.levels)

        def quantiles(asked: Asked) -> FloatArray:
            moved = torch.from_numpy(asked.units.told(plain.quantiles(asked)) + offsets)
            return asked.units.values(uncrossed(moved, anchor).numpy())

        return Fitted(quantiles=quantiles, replaced=plain.replaced)

    def _offsets(self, plain: Fitted) -> FloatArray:
        """[H, Q] in units of the window."""
        windows, units = self.calibration.windows, self.calibration.units
        conformal = calibrate(
            units.told(plain.forecasts(self.calibration)),
            units.told(self.history.outcomes(windows)[..., None])[..., 0],
            self.levels,
            sessions=len(np.unique(windows.positions)),
            horizons=self.history.pipeline.target.horizons,
        )
        return np.array(conformal.offsets)
