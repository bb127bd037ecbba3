"""The ensemble: several models that answer as one."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Self, final

import torch

from predictor.artifact import EnsembleManifest, StoredEnsemble
from predictor.card import skill_of
from predictor.catalog import CovariateInfo, ModelInfo
from predictor.deadline import NEVER, Checkpoint
from predictor.explain.explainer import FLOOR
from predictor.forecast import Attribution, Forecast, TargetPoint
from predictor.instance import Instance, Query
from predictor.model.answering import Outcome, outcomes
from predictor.model.answers import Identity, default_targets, prices_of
from predictor.model.combination import JointPrediction, joint_attribution, joint_quantiles, joint_ranking
from predictor.model.ensemble_info import ensemble_info
from predictor.model.handle import Model
from predictor.model.joint_reading import JointlyPrepared, JointReading
from predictor.model.prepared import places_of


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
        self._reading = JointReading([*members.values()])
        self._skill = skill_of(manifest.card)
        self._fingerprint = f"{identity.weights_hash}|{manifest.conformal}"
        """What its forecasts depend on beside its members' answers."""

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
        return self._reading.bars_needed

    @property
    def covariates(self) -> tuple[CovariateInfo, ...]:
        """What is to be sent beside the bars."""
        return self._reading.covariates

    def prepare(self, instance: Instance, now: datetime) -> JointlyPrepared:
        """Check an instance and compute the inputs of every member.

        Raises:
            CovariateMissingError, UnknownCovariateError: the covariates are not those of the members.
            FeatureMismatchError: it holds windows, but the members do not all read the same ones.
            NoUsableSymbolError: no symbol can be forecast by every member.
            QuantraError: a member cannot forecast it, as `Model.prepare`.
        """
        return self._reading.prepare(instance, now)

    def forecast(self, prepared: Sequence[JointlyPrepared], deadline: Checkpoint = NEVER) -> list[Forecast]:
        """Forecasts of several instances; each member answers all of them at once.

        Raises:
            DeadlineExceededError, CallCancelledError: nobody waits for the answers any more.
        """
        members = self.members.values()
        by_member = [member.forecast([p.members[k] for p in prepared], deadline) for k, member in enumerate(members)]
        return [self._joined(p, answers) for p, answers in zip(prepared, zip(*by_member, strict=True), strict=True)]

    def predict(self, instances: Sequence[Instance], now: datetime, deadline: Checkpoint) -> tuple[Outcome, ...]:
        """As `Answering.predict`."""
        return outcomes(self, instances, now, deadline)

    def explain(self, query: Query, now: datetime, deadline: Checkpoint) -> tuple[Attribution, ...]:
        """Attributions of one query, one a target: the means of the members'.

        Raises:
            QuantraError: as `prepare`, and as `Model.attributions`.
        """
        asked = replace(query, targets=query.targets or self.default_targets())
        prepared = self.prepare(asked.instance, now)
        found = [
            member.attributions(asked, panel, deadline)
            for member, panel in zip(self.members.values(), prepared.members, strict=True)
        ]
        (forecast,), shown = self.forecast([prepared], deadline), prepared.only(asked.symbols)
        return tuple(
            joint_attribution(
                self.identity,
                dict(zip(self.members, answers, strict=True)),
                self._prediction(target, forecast, shown, query.tolerance),
                prepared.warnings,
                self._skill,
            )
            for target, answers in zip(asked.targets, zip(*found, strict=True), strict=True)
        )

    def default_targets(self) -> tuple[TargetPoint, ...]:
        """As `Answering.default_targets`."""
        return default_targets(self.manifest.target, self.manifest.quantiles)

    def info(self, aliases: tuple[str, ...], *, is_default: bool) -> ModelInfo:
        """What the ensemble is, for people and programs; its card lists the members."""
        members = [member.info((), is_default=False) for member in self.members.values()]
        return ensemble_info(self.identity, self.manifest, self._reading, members, aliases, is_default=is_default)

    def _joined(self, prepared: JointlyPrepared, members: Sequence[Forecast]) -> Forecast:
        first = members[0]
        values = joint_quantiles(self.manifest, [member.values for member in members], prepared.scale)
        anchor, ranking = first.anchor_price, joint_ranking(members, prepared.usable)
        return replace(
            first,
            values=values,
            returns=None if first.returns is None else values,
            prices=None if first.prices is None or anchor is None else prices_of(anchor, values),
            model=self.identity.name,
            version=self.identity.version,
            weights_hash=self.identity.weights_hash,
            warnings=prepared.warnings,
            refusals=prepared.refusals,
            skill=self._skill,
            forecast_id=_sixteen_digits(self._fingerprint, *(member.forecast_id for member in members)),
            scores=None if ranking is None else ranking.scores,
            ranks=None if ranking is None else ranking.ranks,
            universe_hash="" if ranking is None else ranking.universe,
        )

    def _prediction(
        self, target: TargetPoint, forecast: Forecast, shown: JointlyPrepared, tolerance: float
    ) -> JointPrediction:
        """For the symbols that are shown."""
        h, q = target.index_in(self.manifest.target.horizons, self.manifest.quantiles)
        floor = FLOOR * self.manifest.target.spread[h] * shown.scale[:, h]
        rows = places_of(shown.symbols, forecast.symbols)
        return JointPrediction(values=forecast.values[rows, h, q], floor=floor, tolerance=tolerance)


def _sixteen_digits(*parts: str) -> str:
    """Of a SHA-256 over the parts, in hex."""
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]
