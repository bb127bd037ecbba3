"""A history as a model reads it: which windows it can forecast, and what it says of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from predictor.artifact import EnsembleManifest
from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.covariates import CovariateSource
from predictor.model import Ensemble, Model, output_map
from predictor.sessions import SessionCalendar
from trainers.stock.data import NO_SOURCE, History, Windows
from trainers.stock.evaluation.forecasts import Forecasts, forecasts_of
from trainers.stock.evaluation.members import Members
from trainers.stock.evaluation.seen import ever_seen, origin_notes
from trainers.stock.splits import Part

Judgeable = Model | Ensemble
"""What can be evaluated."""


class Reading(Protocol):
    """A model with the history that it is asked about."""

    @property
    def history(self) -> History:
        """Inputs and labels; also what the baselines read."""
        ...

    def windows(self, part: Part) -> Windows:
        """The windows of a part that the model can forecast, by date."""
        ...

    def forecasts(self, windows: Windows) -> Forecasts:
        """What the model says of them."""
        ...


def reading_of(model: Judgeable, bars: BarPanel, covariates: CovariateSource = NO_SOURCE) -> Reading:
    """How this model reads these bars.

    Raises:
        CovariateMissingError: it reads a covariate that no file has.
    """
    if isinstance(model, Ensemble):
        return _Jointly(manifest=model.manifest, members=Members.over(bars, model.members, covariates))
    return _Alone(model=model, history=History(bars, model.pipeline, covariates))


def calendar_of(model: Judgeable) -> SessionCalendar:
    """The sessions that the model counts by; the members of an ensemble share them."""
    first = next(iter(model.members.values())) if isinstance(model, Ensemble) else model
    return first.pipeline.calendar


def last_seen(model: Judgeable) -> int:
    """The last session, yyyymmdd, that a label touched which anything in the model was made from.

    An ensemble is calibrated on the days that its members share; one of them may have seen later days.

    Raises:
        ArtifactError: a card does not tell.
    """
    return max(map(ever_seen, _cards(model)))


def origins(model: Judgeable) -> tuple[str, ...]:
    """What a reader must know of weights that the model, or a member of it, started from.

    Raises:
        ArtifactError: a card tells of some, but not what it must.
    """
    return tuple(dict.fromkeys(note for card in _cards(model) for note in origin_notes(card)))


def _cards(model: Judgeable) -> Iterator[Mapping[str, Json]]:
    """The model's own, and those of an ensemble's members."""
    yield model.manifest.card
    if isinstance(model, Ensemble):
        yield from (member.manifest.card for member in model.members.values())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Alone:
    """A model of one network."""

    model: Model
    history: History

    def windows(self, part: Part) -> Windows:
        return self.history.windows(part)

    def forecasts(self, windows: Windows) -> Forecasts:
        manifest = self.model.manifest
        return forecasts_of(self.model.engine, output_map(manifest), self.history, windows, manifest.universe)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Jointly:
    """The members of an ensemble, each with the history as it reads it."""

    manifest: EnsembleManifest
    members: Members

    @property
    def history(self) -> History:
        return self.members.first

    def windows(self, part: Part) -> Windows:
        return self.members.windows(part)

    def forecasts(self, windows: Windows) -> Forecasts:
        return self.members.joined(self.manifest, windows, self.members.forecasts(windows))
