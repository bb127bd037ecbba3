"""What a client knows of the model that it asks: how many bars a forecast depends on, and how much fits into a call."""

from dataclasses import dataclass, replace
from typing import Self, final

from predictor._pb import prediction_pb2 as pb
from predictor.bars import BarPanel
from predictor.covariates import Covariates
from predictor.errors import CovariatesError
from predictor.forecast import Attribution, Forecast
from predictor.instance import Instance
from predictor.wire import models
from predictor.wire.limits import RequestLimits


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One version of a model, as its server told of it."""

    name: str
    version: int
    weights_hash: str
    bars_needed: int
    """Sessions that a forecast depends on; those before them change nothing."""
    is_panel_model: bool
    """Whether the forecast of a symbol depends on the others of its panel."""
    limits: RequestLimits
    """How large one request may be."""

    @classmethod
    def of(cls, answer: pb.GetModelResponse) -> Self:
        """What the answer to GetModel says."""
        info = answer.model
        return cls(
            name=info.name,
            version=info.version,
            weights_hash=info.weights_hash,
            bars_needed=info.bars_needed,
            is_panel_model=info.is_panel_model,
            limits=models.decode_limits(answer.limits),
        )

    @property
    def reference(self) -> str:
        """This version and no other, as "NAME@VERSION"."""
        return f"{self.name}@{self.version}"

    def cut(self, instance: Instance) -> Instance:
        """The instance with the sessions that its forecast depends on, and no others.

        A model reads the last `bars_needed` sessions of the panel's own axis: it takes them before it adjusts prices or
        computes a feature, so the forecast of these is that of the whole panel, to the last bit. What does not fit
        together is left as it is, for the server to say so.
        """
        bars, most = instance.input, self.bars_needed
        if not isinstance(bars, BarPanel) or not 0 < most < len(bars.sessions) or not _fits(instance.covariates, bars):
            return instance
        return replace(instance, input=bars.last(most), covariates=instance.covariates.last(most))

    def has_made(self, answer: Forecast | Attribution) -> bool:
        """Whether an answer is this version's."""
        return (answer.version, answer.weights_hash) == (self.version, self.weights_hash)

    def is_content_with(self, cut: Self) -> bool:
        """Whether panels that were cut and split for another version suffice for this one too."""
        return self.bars_needed <= cut.bars_needed and self.is_panel_model == cut.is_panel_model


def _fits(covariates: Covariates, bars: BarPanel) -> bool:
    try:
        covariates.check(len(bars.symbols), bars.sessions)
    except CovariatesError:
        return False
    return True
