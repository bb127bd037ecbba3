"""The ensemble: several models that answer as one."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self, TypeVar, final

import numpy as np
import torch

from predictor import canonical
from predictor.artifact import COMBINATION, EnsembleManifest, StoredEnsemble
from predictor.canonical import Json
from predictor.catalog import ModelInfo
from predictor.covariates import check_sent
from predictor.deadline import Checkpoint
from predictor.errors import ExplainUnsupportedError, FeatureMismatchError, NoUsableSymbolError
from predictor.explain.explainer import FLOOR
from predictor.forecast import Attribution, Forecast, TargetPoint
from predictor.instance import INTEGRATED_GRADIENTS, FeatureWindow, Instance, Query
from predictor.model.answering import Outcome, outcomes
from predictor.model.answers import Identity
from predictor.model.combination import JointPrediction, joint_attribution, joint_quantiles, joint_ranking
from predictor.model.handle import Model
from predictor.model.prepared import BoolArray, FloatArray, Prepared
from predictor.networks import Normaliser, anchor_index
from predictor.sessions import SessionCalendar

KIND = "ensemble"
"""What stands in place of a network's kind."""

NamedT = TypeVar("NamedT")


@dataclass(frozen=True, slots=True)
class _Reading:
    """What decides a model's inputs: members that agree in it share them."""

    schema_hash: str
    encoder_length: int
    normaliser: Normaliser
    calendar: SessionCalendar


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointlyPrepared:
    """An instance as each member reads it."""

    members: tuple[Prepared, ...]
    """In the order of the ensemble's members."""

    @property
    def usable(self) -> BoolArray:
        """[S] which symbols every member can forecast."""
        return np.logical_and.reduce([p.usable for p in self.members])

    @property
    def scale(self) -> FloatArray:
        """[S] mean of the members' window volatilities; NaN for a symbol that is not usable."""
        scales = np.full((len(self.members), len(self.usable)), np.nan)
        for row, prepared in zip(scales, self.members, strict=True):
            row[prepared.usable] = prepared.inputs.scale.numpy()
        return scales.mean(axis=0)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What any member warns of, once each."""
        return tuple(dict.fromkeys(warning for p in self.members for warning in p.warnings))


@final
class Ensemble:
    """Several models as one, ready to answer. Nothing on it changes, so any thread may use it.

    Members share target, horizons, lag, quantiles and calendar; networks, features and encoder lengths may differ.
    """

    def __init__(self, identity: Identity, manifest: EnsembleManifest, members: Mapping[str, Model]) -> None:
        """Receive the parts; `members` are in the manifest's order."""
        self.identity = identity
        self.manifest = manifest
        self.members = members
        readings = [_reading(member) for member in members.values()]
        alike = [readings.index(reading) for reading in readings]
        self._alike = tuple(alike)
        """Each member's first fellow that reads the same inputs."""
        self._longest_first = sorted(
            zip(alike, members.values(), strict=True), key=lambda m: -m[1].pipeline.bars_needed
        )
        self.covariates = _union((m.pipeline.covariates for m in members.values()), lambda need: need.name)
        """What is to be sent beside the bars, as its first reader reads it."""
        self._fingerprint = _fingerprint(identity, manifest)

    @classmethod
    def assemble(cls, identity: Identity, stored: StoredEnsemble, *, device: torch.device, max_rows: int) -> Self:
        """Build every member from its artifact's parts."""
        members = {
            name: Model.assemble(
                Identity(
                    name=f"{identity.name}/{name}",
                    version=identity.version,
                    weights_hash=stored.members[name].weights_hash,
                ),
                stored.members[name].artifact,
                device=device,
                max_rows=max_rows,
            )
            for name in stored.manifest.members
        }
        return cls(identity, stored.manifest, members)

    @property
    def bars_needed(self) -> int:
        """Bars that one forecast depends on: the most that a member needs."""
        return max(member.pipeline.bars_needed for member in self.members.values())

    def prepare(self, instance: Instance, now: datetime) -> JointlyPrepared:
        """Check an instance and compute the inputs of every member.

        Raises:
            CovariateMissingError, UnknownCovariateError: the covariates are not those of the members.
            FeatureMismatchError: it holds windows, but the members do not all read the same ones.
            NoUsableSymbolError: no symbol can be forecast by every member.
            QuantraError: a member cannot forecast it, as `Model.prepare`.
        """
        if isinstance(instance.input, FeatureWindow):
            self._check_takes_windows()
        else:
            check_sent(self.covariates, instance.covariates)
        found: dict[int, Prepared] = {}
        # Whoever needs most bars goes first: if they are too few, the error tells how many the ensemble needs.
        for reader, member in self._longest_first:
            if reader not in found:
                found[reader] = member.prepare(_read_by(member, instance), now)
        prepared = JointlyPrepared(members=tuple(found[reader] for reader in self._alike))
        if not prepared.usable.any():
            raise NoUsableSymbolError("; ".join(prepared.warnings))
        return prepared

    def forecast(self, prepared: Sequence[JointlyPrepared]) -> list[Forecast]:
        """Forecasts of several instances; each member answers all of them at once."""
        members = self.members.values()
        by_member = [member.forecast([p.members[k] for p in prepared]) for k, member in enumerate(members)]
        return [self._joined(p, answers) for p, answers in zip(prepared, zip(*by_member, strict=True), strict=True)]

    def predict(self, instances: Sequence[Instance], now: datetime, deadline: Checkpoint) -> tuple[Outcome, ...]:
        """As `Answering.predict`."""
        return outcomes(self, instances, now, deadline)

    def explain(self, query: Query, now: datetime, deadline: Checkpoint) -> tuple[Attribution, ...]:
        """Attributions of one query, one a target: the means of the members'.

        Raises:
            ExplainUnsupportedError: the method is not one that members' answers can be joined for.
            QuantraError: as `Model.explain`.
        """
        if query.method != INTEGRATED_GRADIENTS:
            raise ExplainUnsupportedError(
                f"there is no method {query.method!r}; an ensemble has [{INTEGRATED_GRADIENTS!r}]"
            )
        asked = replace(query, targets=query.targets or self.default_targets())
        prepared = self.prepare(asked.instance, now)
        (forecast,) = self.forecast([prepared])
        found = [
            member.explain(replace(asked, instance=_read_by(member, asked.instance)), now, deadline)
            for member in self.members.values()
        ]
        return tuple(
            joint_attribution(
                self.identity,
                dict(zip(self.members, answers, strict=True)),
                self._prediction(target, forecast, prepared, query.tolerance),
                prepared.warnings,
            )
            for target, answers in zip(asked.targets, zip(*found, strict=True), strict=True)
        )

    def default_targets(self) -> tuple[TargetPoint, ...]:
        """Every horizon at the quantile nearest to the median."""
        level = self.manifest.quantiles[anchor_index(self.manifest.quantiles)]
        return tuple(TargetPoint(h, level) for h in self.manifest.target.horizons)

    def info(self, aliases: tuple[str, ...], *, is_default: bool) -> ModelInfo:
        """What the ensemble is, for people and programs; its card lists the members."""
        infos = [member.info((), is_default=False) for member in self.members.values()]
        longest = max(info.encoder_length for info in infos)
        return ModelInfo(
            name=self.identity.name,
            version=self.identity.version,
            aliases=aliases,
            is_default=is_default,
            kind=KIND,
            observed_features=_union((info.observed_features for info in infos), lambda feature: feature.name),
            known_features=_union((info.known_features for info in infos), lambda feature: feature.name),
            static_features=_union((info.static_features for info in infos), lambda feature: feature.name),
            covariates=self.covariates,
            schema_hash=self._schema_hash(),
            encoder_length=longest,
            lookback=self.bars_needed - longest + 1,
            bars_needed=self.bars_needed,
            future_length=self.manifest.target.reach,
            horizons=self.manifest.target.horizons,
            quantiles=self.manifest.quantiles,
            lag=self.manifest.target.lag,
            target_kind=self.manifest.target.kind.value,
            calendar=self.manifest.calendar,
            calendar_ends=min(info.calendar_ends for info in infos),
            is_panel_model=any(info.is_panel_model for info in infos),
            explain_methods=(INTEGRATED_GRADIENTS,),
            weights_hash=self.identity.weights_hash,
            card_json=canonical.to_bytes({**self.manifest.card, **self._facts(infos)}).decode(),
        )

    def _check_takes_windows(self) -> None:
        if any(self._alike):
            raise FeatureMismatchError(
                "the members of this ensemble read different windows: their features, fitted numbers, encoder lengths "
                "or normalisers differ; send bars, from which each member makes its own",
                metadata={"expected": self._schema_hash()},
            )

    def _joined(self, prepared: JointlyPrepared, members: Sequence[Forecast]) -> Forecast:
        first = members[0]
        values = joint_quantiles(self.manifest, [member.values for member in members], prepared.scale)
        anchor, ranking = first.anchor_price, joint_ranking(members, prepared.usable)
        return replace(
            first,
            values=values,
            returns=None if first.returns is None else values,
            prices=None if first.prices is None or anchor is None else anchor[:, None, None] * np.exp(values),
            model=self.identity.name,
            version=self.identity.version,
            weights_hash=self.identity.weights_hash,
            warnings=prepared.warnings,
            forecast_id=_sixteen_digits(self._fingerprint, *(member.forecast_id for member in members)),
            scores=None if ranking is None else ranking.scores,
            ranks=None if ranking is None else ranking.ranks,
            universe_hash="" if ranking is None else ranking.universe,
        )

    def _prediction(
        self, target: TargetPoint, forecast: Forecast, prepared: JointlyPrepared, tolerance: float
    ) -> JointPrediction:
        h, q = target.index_in(self.manifest.target.horizons, self.manifest.quantiles)
        floor = FLOOR * self.manifest.target.spread[h] * prepared.scale
        return JointPrediction(values=forecast.values[:, h, q], floor=floor, tolerance=tolerance)

    def _schema_hash(self) -> str:
        """The members' own if they share one; else a name for all of theirs."""
        hashes = [member.pipeline.features.schema_hash for member in self.members.values()]
        return hashes[0] if len(set(hashes)) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()

    def _facts(self, infos: Sequence[ModelInfo]) -> dict[str, Json]:
        """What the card says of the members, computed from them."""
        members: list[Json] = [
            {
                "name": name,
                "kind": info.kind,
                "encoder_length": info.encoder_length,
                "bars_needed": info.bars_needed,
                "features": len(info.observed_features) + len(info.known_features) + len(info.static_features),
                "weights_hash": info.weights_hash,
                "manifest_hash": self.manifest.members[name],
            }
            for name, info in zip(self.members, infos, strict=True)
        ]
        return {"combination": COMBINATION, "members": members}


def _reading(member: Model) -> _Reading:
    pipeline = member.pipeline
    return _Reading(pipeline.features.schema_hash, pipeline.encoder_length, pipeline.normaliser, pipeline.calendar)


def _union(groups: Iterable[tuple[NamedT, ...]], name: Callable[[NamedT], str]) -> tuple[NamedT, ...]:
    """What any member has, once each, in the order in which they first appear."""
    found: dict[str, NamedT] = {}
    for group in groups:
        for item in group:
            found.setdefault(name(item), item)
    return tuple(found.values())


def _read_by(member: Model, instance: Instance) -> Instance:
    """The instance with those covariates alone that a member reads."""
    names = {need.name for need in member.pipeline.covariates}
    return replace(instance, covariates=instance.covariates.only(names))


def _fingerprint(identity: Identity, manifest: EnsembleManifest) -> str:
    """What the ensemble's forecasts depend on beside its members' answers."""
    return f"{identity.weights_hash}|{manifest.conformal}"


def _sixteen_digits(*parts: str) -> str:
    """Of a SHA-256 over the parts, in hex."""
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]
