"""How the members of an ensemble read one instance."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar, final

import numpy as np

from predictor.bars import BarPanel
from predictor.catalog import CovariateInfo, FeatureInfo
from predictor.covariates import check_sent
from predictor.errors import FeatureMismatchError, QuantraError
from predictor.instance import Instance
from predictor.model.doubts import doubts
from predictor.model.handle import Model
from predictor.model.prepared import BoolArray, FloatArray, Prepared, bounded, nothing_usable
from predictor.model.preparing import prepared_by
from predictor.windows import Pipeline

NamedT = TypeVar("NamedT", CovariateInfo, FeatureInfo)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointlyPrepared:
    """An instance as each member reads it."""

    members: tuple[Prepared, ...]
    """In the order of the ensemble's members."""
    doubts: tuple[str, ...] = ()
    """Of the whole ensemble."""

    def only(self, symbols: Sequence[str]) -> "JointlyPrepared":
        """The same of some symbols; see `Prepared.only`."""
        return replace(self, members=tuple(p.only(symbols) for p in self.members))

    @property
    def symbols(self) -> tuple[str, ...]:
        """[S] names."""
        return self.members[0].symbols

    @property
    def usable(self) -> BoolArray:
        """[S] which symbols every member can forecast."""
        return np.logical_and.reduce([p.usable for p in self.members])

    @property
    def scale(self) -> FloatArray:
        """[S, H] mean of the members' window volatilities; NaN for a symbol that is not usable."""
        horizons = self.members[0].inputs.scale.shape[1]
        scales = np.full((len(self.members), len(self.usable), horizons), np.nan)
        for rows, prepared in zip(scales, self.members, strict=True):
            rows[prepared.usable] = prepared.inputs.scale.numpy()
        return scales.mean(axis=0)

    @property
    def refusals(self) -> dict[str, QuantraError]:
        """Why each symbol that a member cannot forecast cannot be forecast, by the first such member."""
        found: dict[str, QuantraError] = {}
        for prepared in self.members:
            for symbol, error in prepared.refusals.items():
                found.setdefault(symbol, error)
        return found

    @property
    def warnings(self) -> tuple[str, ...]:
        """What there is to doubt, and what any member warns of, once each."""
        return bounded(dict.fromkeys((*self.doubts, *(warning for p in self.members for warning in p.warnings))))


@final
class JointReading:
    """Prepares instances for every member, once for those that read the same inputs."""

    def __init__(self, members: Sequence[Model]) -> None:
        """Receive the members, in the ensemble's order."""
        readings = [member.pipeline.reading for member in members]
        self._members = tuple(
            (readings.index(reading), member) for reading, member in zip(readings, members, strict=True)
        )
        """Each with the place of its first fellow that reads the same inputs."""
        self._taught = tuple(member.taught for member in members)
        pipelines = {place: members[place].pipeline for place, _ in self._members}
        # Whoever needs most bars goes first: if they are too few, the error tells how many the ensemble needs.
        self._pipelines = dict(sorted(pipelines.items(), key=lambda one: -one[1].bars_needed))
        self.covariates = named_once(member.pipeline.covariates for member in members)
        """What is to be sent beside the bars, as its first reader reads it."""

    @property
    def bars_needed(self) -> int:
        """Bars that one forecast depends on: the most that a member needs."""
        return next(iter(self._pipelines.values())).bars_needed

    @property
    def is_one(self) -> bool:
        """Whether all members read the same inputs."""
        return len(self._pipelines) == 1

    def prepare(self, instance: Instance, now: datetime) -> JointlyPrepared:
        """As `Ensemble.prepare`."""
        if isinstance(instance.input, BarPanel):
            check_sent(self.covariates, instance.covariates)
        elif not self.is_one:
            raise FeatureMismatchError(
                "the members of this ensemble read different windows: their features, fitted numbers, encoder lengths "
                "or normalisers differ; send bars, from which each member makes its own"
            )
        found = {
            place: prepared_by(pipeline, _read_by(pipeline, instance), now)
            for place, pipeline in self._pipelines.items()
        }
        prepared = JointlyPrepared(members=tuple(member.warned(found[place]) for place, member in self._members))
        if not prepared.usable.any():
            raise nothing_usable(prepared.refusals)
        symbols = [symbol for symbol, known in zip(prepared.symbols, prepared.usable, strict=True) if known]
        return replace(prepared, doubts=tuple(doubts(self._taught, instance, symbols)))


def _read_by(pipeline: Pipeline, instance: Instance) -> Instance:
    """The instance with those covariates alone that a member reads."""
    names = {need.name for need in pipeline.covariates}
    return replace(instance, covariates=instance.covariates.only(names))


def named_once(groups: Iterable[Sequence[NamedT]]) -> tuple[NamedT, ...]:
    """What any member has, once each by name, in the order in which they first appear."""
    found: dict[str, NamedT] = {}
    for group in groups:
        for item in group:
            found.setdefault(item.name, item)
    return tuple(found.values())
