"""The ensemble: several models that forecast as one."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self, TypeVar, final

import numpy as np
import torch

from predictor import canonical
from predictor.arrays import BoolArray, FloatArray
from predictor.artifact import EnsembleManifest, StoredEnsemble
from predictor.bars import BarPanel
from predictor.call_context import NEVER, Deadline
from predictor.canonical import Json
from predictor.card import read_skill
from predictor.catalog import CovariateInfo, FeatureInfo, ModelInfo
from predictor.covariates import check_covariates
from predictor.errors import ExplainUnsupportedError, FeatureMismatchError, QuantraError
from predictor.explain import ExplanationCost
from predictor.explain.integrated_gradients import GAP_FLOOR
from predictor.forecast import Attribution, Forecast, TargetPoint
from predictor.instance import OCCLUSION, ExplanationQuery, Instance
from predictor.model.ensemble_outputs import JointPrediction, combine_attributions, combine_quantiles, combine_rankings
from predictor.model.explanations import choose_method, compute_cost, index_targets
from predictor.model.model import Model
from predictor.model.predictor import (
    NOT_ADDITIVE,
    ModelIdentity,
    TwoStagePredictor,
    compute_prices,
    list_default_targets,
)
from predictor.model.preparation import InstancePreparation
from predictor.model.prepared_instance import (
    PreparedInstance,
    find_data_warnings,
    find_indices,
    limit_warnings,
    make_no_usable_symbol_error,
)
from predictor.windows import Pipeline

NamedT = TypeVar("NamedT", CovariateInfo, FeatureInfo)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointlyPrepared:
    """An instance prepared for each member."""

    members: tuple[PreparedInstance, ...]
    """In member order."""
    data_warnings: tuple[str, ...] = ()
    """Warnings about the ensemble as a whole."""

    def only(self, symbols: Sequence[str]) -> "JointlyPrepared":
        """Select symbols; see `PreparedInstance.only`."""
        return replace(self, members=tuple(p.only(symbols) for p in self.members))

    @property
    def symbols(self) -> tuple[str, ...]:
        """[S] names."""
        return self.members[0].symbols

    @property
    def usable(self) -> BoolArray:
        """[S] whether every member can forecast the symbol."""
        return np.logical_and.reduce([p.usable for p in self.members])

    @property
    def scale(self) -> FloatArray:
        """[S, H] mean of the members' window volatilities; NaN for an unusable symbol."""
        horizons = self.members[0].inputs.scale.shape[1]
        scales = np.full((len(self.members), len(self.usable), horizons), np.nan)
        for rows, prepared in zip(scales, self.members, strict=True):
            rows[prepared.usable] = prepared.inputs.scale.numpy()
        return scales.mean(axis=0)

    @property
    def refusals(self) -> dict[str, QuantraError]:
        """The error of each symbol that some member cannot forecast, from the first such member."""
        refusals: dict[str, QuantraError] = {}
        for prepared in self.members:
            for symbol, error in prepared.refusals.items():
                refusals.setdefault(symbol, error)
        return refusals

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the ensemble and its members, without duplicates."""
        return limit_warnings(
            dict.fromkeys((*self.data_warnings, *(warning for p in self.members for warning in p.warnings)))
        )


DIFFERENT_WINDOWS = (
    "the members of this ensemble read different windows: their features, fitted numbers, encoder lengths or "
    "normalisers differ; send bars, from which each member computes its own"
)
"""Error for feature windows sent to an ensemble whose members read different inputs."""


@final
class JointPreparation:
    """Prepares instances for all members, and only once for members with the same inputs."""

    def __init__(self, members: Sequence[Model]) -> None:
        """Store the members, in the ensemble's order."""
        recipes = [member.pipeline.recipe for member in members]
        self._members = tuple((recipes.index(recipe), member) for recipe, member in zip(recipes, members, strict=True))
        """Each member with the index of the first member that reads the same inputs."""
        panels = {index for index, member in self._members if member.manifest.kind.is_panel_model}
        self._training_summaries = tuple(member.training_summary for member in members)
        pipelines = {index: members[index].pipeline for index, _ in self._members}
        # The member that needs the most bars goes first: its error then states how many the ensemble needs.
        ordered = sorted(pipelines.items(), key=lambda item: -item[1].bars_needed)
        self._preparations = {
            index: InstancePreparation(pipeline, together=index not in panels) for index, pipeline in ordered
        }
        self.covariates = merge_by_name(member.pipeline.covariates for member in members)
        """Covariates that the members read, each as its first member defines it."""

    @property
    def bars_needed(self) -> int:
        """Bars that one forecast needs: the maximum over the members."""
        return next(iter(self._preparations.values())).pipeline.bars_needed

    def prepare_each(
        self, instances: Sequence[Instance], now: datetime, deadline: Deadline
    ) -> list[JointlyPrepared | QuantraError]:
        """See `TwoStagePredictor.prepare_each`; prepares all instances for one member after another."""
        errors: dict[int, QuantraError] = {}
        prepared_of: list[dict[int, PreparedInstance]] = [{} for _ in instances]
        for k, instance in enumerate(instances):
            if (error := self._find_input_error(instance)) is not None:
                errors[k] = error
        for index, preparation in self._preparations.items():
            indices = [k for k in range(len(instances)) if k not in errors]
            reduced = [_select_covariates(preparation.pipeline, instances[k]) for k in indices]
            prepared = preparation.prepare_each(reduced, now, deadline)
            for k, result in zip(indices, prepared, strict=True):
                if isinstance(result, QuantraError):
                    errors[k] = result
                else:
                    prepared_of[k][index] = result
        return [
            errors[k] if k in errors else self._join(instance, prepared_of[k]) for k, instance in enumerate(instances)
        ]

    def _find_input_error(self, instance: Instance) -> QuantraError | None:
        """Return the error of an instance that does not have the members' inputs."""
        if not isinstance(instance.input, BarPanel):
            return None if len(self._preparations) == 1 else FeatureMismatchError(DIFFERENT_WINDOWS)
        try:
            check_covariates(self.covariates, instance.covariates)
        except QuantraError as error:
            return error.without_frames()
        return None

    def _join(self, instance: Instance, prepared_of: Mapping[int, PreparedInstance]) -> JointlyPrepared | QuantraError:
        prepared = JointlyPrepared(
            members=tuple(member.add_network_warnings(prepared_of[index]) for index, member in self._members)
        )
        usable = prepared.usable
        if not usable.any():
            return make_no_usable_symbol_error(prepared.refusals)
        symbols = [symbol for symbol, known in zip(prepared.symbols, usable, strict=True) if known]
        return replace(prepared, data_warnings=tuple(find_data_warnings(self._training_summaries, instance, symbols)))


def _select_covariates(pipeline: Pipeline, instance: Instance) -> Instance:
    """Keep only the covariates that a member reads."""
    if not instance.covariates.names:
        return instance
    names = {need.name for need in pipeline.covariates}
    return replace(instance, covariates=instance.covariates.only(names))


def merge_by_name(groups: Iterable[Sequence[NamedT]]) -> tuple[NamedT, ...]:
    """Merge the groups; keeps the first item of each name, in order of appearance."""
    item_by_name: dict[str, NamedT] = {}
    for group in groups:
        for item in group:
            item_by_name.setdefault(item.name, item)
    return tuple(item_by_name.values())


def identify_members(identity: ModelIdentity, ensemble: StoredEnsemble) -> dict[str, ModelIdentity]:
    """Return the identity of each member, in manifest order."""
    return {
        name: ModelIdentity(
            name=f"{identity.name}/{name}", version=identity.version, weights_hash=ensemble.members[name].weights_hash
        )
        for name in ensemble.manifest.members
    }


KIND = "ensemble"
"""Reported as the network kind of an ensemble."""


def describe_ensemble(
    identity: ModelIdentity,
    manifest: EnsembleManifest,
    members: Sequence[ModelInfo],
    aliases: tuple[str, ...],
    *,
    is_default: bool,
) -> ModelInfo:
    """Describe an ensemble; the card lists its members, in manifest order."""
    hashes = [info.schema_hash for info in members]
    longest, bars_needed = max(info.encoder_length for info in members), max(info.bars_needed for info in members)
    return ModelInfo(
        name=identity.name,
        version=identity.version,
        aliases=aliases,
        is_default=is_default,
        kind=KIND,
        observed_features=merge_by_name(info.observed_features for info in members),
        known_features=merge_by_name(info.known_features for info in members),
        static_features=merge_by_name(info.static_features for info in members),
        covariates=merge_by_name(info.covariates for info in members),
        schema_hash=hashes[0] if len(set(hashes)) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest(),
        encoder_length=longest,
        lookback=bars_needed - longest + 1,
        bars_needed=bars_needed,
        future_length=manifest.target.reach,
        horizons=manifest.target.horizons,
        is_scaled_per_horizon=any(info.is_scaled_per_horizon for info in members),
        quantiles=manifest.quantiles,
        lag=manifest.target.lag,
        target_kind=manifest.target.kind.value,
        calendar=manifest.calendar,
        calendar_ends=min(info.calendar_ends for info in members),
        is_panel_model=any(info.is_panel_model for info in members),
        explain_methods=find_common_methods([info.explain_methods for info in members]),
        weights_hash=identity.weights_hash,
        card_json=canonical.to_bytes({**manifest.card, **_describe_members(manifest, members)}).decode(),
    )


def find_common_methods(methods: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The methods of all members, the default first.

    Occlusion of adopted models hides bars and not features, so they have no method in common with others.
    """
    if (OCCLUSION,) in methods and len(set(methods)) > 1:
        return ()
    return tuple(method for method in methods[0] if all(method in others for others in methods))


def _describe_members(manifest: EnsembleManifest, infos: Sequence[ModelInfo]) -> dict[str, Json]:
    """Compute the card's entries about the members."""
    members: list[Json] = [
        {
            "name": name,
            "kind": info.kind,
            "encoder_length": info.encoder_length,
            "bars_needed": info.bars_needed,
            "features": len(info.observed_features) + len(info.known_features) + len(info.static_features),
            "weights_hash": info.weights_hash,
            "manifest_hash": digest,
            **({"weights": list(manifest.weights[k])} if manifest.weights else {}),
        }
        for k, ((name, digest), info) in enumerate(zip(manifest.members.items(), infos, strict=True))
    ]
    return {"combination": manifest.combination, "members": members}


@final
class Ensemble(TwoStagePredictor[JointlyPrepared]):
    """Several models that forecast as one. Immutable and thread-safe.

    Members share target, horizons, lag, quantiles and calendar; networks, features and encoder lengths may differ.
    """

    def __init__(self, identity: ModelIdentity, manifest: EnsembleManifest, members: Mapping[str, Model]) -> None:
        """Store the parts; `members` are in manifest order."""
        self.identity = identity
        self.manifest = manifest
        self.members = members
        self._preparation = JointPreparation([*members.values()])
        self._skill = read_skill(manifest.card)
        weights = f"|{manifest.weights}" if manifest.weights else ""
        self._fingerprint = f"{identity.weights_hash}|{manifest.conformal}{weights}"
        """What the forecasts depend on besides the members' forecasts."""

    @classmethod
    def assemble(
        cls, identity: ModelIdentity, ensemble: StoredEnsemble, *, device: torch.device, max_rows: int
    ) -> Self:
        """Build every member from its artifact."""
        members = {
            name: Model.assemble(member, ensemble.members[name].artifact, device=device, max_rows=max_rows)
            for name, member in identify_members(identity, ensemble).items()
        }
        return cls(identity, ensemble.manifest, members)

    @property
    def bars_needed(self) -> int:
        """Bars that one forecast needs: the maximum over the members."""
        return self._preparation.bars_needed

    @property
    def covariates(self) -> tuple[CovariateInfo, ...]:
        """Covariates that the members read."""
        return self._preparation.covariates

    def prepare_each(
        self, instances: Sequence[Instance], now: datetime, deadline: Deadline
    ) -> list[JointlyPrepared | QuantraError]:
        """See `TwoStagePredictor.prepare_each`."""
        prepared = self._preparation.prepare_each(instances, now, deadline)
        return [
            self.identity.name_in_error(result) if isinstance(result, QuantraError) else result for result in prepared
        ]

    def forecast(self, prepared: Sequence[JointlyPrepared], deadline: Deadline = NEVER) -> list[Forecast]:
        """Forecast several instances; each member forecasts all of them at once.

        Raises:
            DeadlineExceededError, CallCancelledError: the call timed out or was cancelled.
        """
        members = self.members.values()
        by_member = [member.forecast([p.members[k] for p in prepared], deadline) for k, member in enumerate(members)]
        return [
            self._join_forecasts(p, answers) for p, answers in zip(prepared, zip(*by_member, strict=True), strict=True)
        ]

    def explain(self, query: ExplanationQuery, now: datetime, deadline: Deadline) -> tuple[Attribution, ...]:
        """Explain one query; returns the weighted mean of the members' attributions, one per target.

        Raises:
            ExplainUnsupportedError: the members have no common method, or not this one.
            RequestTooLargeError: all members together may need more than `explain.MAX_ROWS`.
            QuantraError: see `prepare` and `Model.attributions`.
        """
        method = self._choose_method(query)
        self._cost(query).check()
        complete = replace(query, targets=query.targets or self.default_targets(), method=method)
        prepared = self.prepare(complete.instance, now)
        attributions = [
            member.attributions(complete, panel, deadline)
            for member, panel in zip(self.members.values(), prepared.members, strict=True)
        ]
        warnings = (NOT_ADDITIVE, *prepared.warnings) if method == OCCLUSION else prepared.warnings
        (forecast,), selection = self.forecast([prepared], deadline), prepared.only(complete.symbols)
        return tuple(
            combine_attributions(
                self.identity,
                dict(zip(self.members, answers, strict=True)),
                self._predict_point(target, forecast, selection, query.tolerance),
                warnings,
                self._skill,
            )
            for target, answers in zip(complete.targets, zip(*attributions, strict=True), strict=True)
        )

    def _choose_method(self, query: ExplanationQuery) -> str:
        common = find_common_methods([member.methods for member in self.members.values()])
        if not common:
            adopted = ", ".join(name for name, member in self.members.items() if member.manifest.kind.is_adopted)
            raise ExplainUnsupportedError(
                f"this ensemble has adopted members ({adopted}), whose explanations hide bars, and others, whose "
                "explanations hide features, so their contributions cannot be averaged; explain the members separately"
            )
        return choose_method(query.method, common)

    def explain_cost(self, query: ExplanationQuery) -> int:
        """See `Predictor.explain_cost`; the sum over the members."""
        return self._cost(query).rows

    def _cost(self, query: ExplanationQuery) -> ExplanationCost:
        targets = query.targets or self.default_targets()
        points = index_targets(targets, self.manifest.target, self.manifest.quantiles)
        members, method = self.members.values(), self._choose_method(query)
        forecasts = max(member.count_forecasts(method) for member in members)
        return compute_cost(query, points, sum(member.rows_per_window for member in members), forecasts=forecasts)

    def default_targets(self) -> tuple[TargetPoint, ...]:
        """See `Predictor.default_targets`."""
        return list_default_targets(self.manifest.target, self.manifest.quantiles)

    def info(self, aliases: tuple[str, ...], *, is_default: bool) -> ModelInfo:
        """Describe the ensemble; its card lists the members."""
        members = [member.info((), is_default=False) for member in self.members.values()]
        return describe_ensemble(self.identity, self.manifest, members, aliases, is_default=is_default)

    def _join_forecasts(self, prepared: JointlyPrepared, members: Sequence[Forecast]) -> Forecast:
        first = members[0]
        values = combine_quantiles(self.manifest, [member.values for member in members], prepared.scale)
        anchor, ranking = first.anchor_price, combine_rankings(members, prepared.usable)
        parts = (self._fingerprint, *(member.forecast_id for member in members))
        return replace(
            first,
            values=values,
            returns=None if first.returns is None else values,
            prices=None if first.prices is None or anchor is None else compute_prices(anchor, values),
            model=self.identity.name,
            version=self.identity.version,
            weights_hash=self.identity.weights_hash,
            warnings=prepared.warnings,
            refusals=prepared.refusals,
            skill=self._skill,
            forecast_id=hashlib.sha256("|".join(parts).encode()).hexdigest()[:16],
            scores=None if ranking is None else ranking.scores,
            ranks=None if ranking is None else ranking.ranks,
            universe_hash="" if ranking is None else ranking.universe,
        )

    def _predict_point(
        self, target: TargetPoint, forecast: Forecast, selection: JointlyPrepared, tolerance: float
    ) -> JointPrediction:
        """Compute the joint prediction for the requested symbols."""
        h, q = target.index_in(self.manifest.target.horizons, self.manifest.quantiles)
        floor = GAP_FLOOR * self.manifest.target.spread[h] * selection.scale[:, h]
        rows = find_indices(selection.symbols, forecast.symbols)
        return JointPrediction(
            values=forecast.values[rows, h, q],
            floor=floor,
            tolerance=tolerance,
            weights=tuple(row[q] for row in self.manifest.weights),
            refusals=selection.refusals,
        )
