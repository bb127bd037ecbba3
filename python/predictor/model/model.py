"""A loaded model version with a single network."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, Self

import numpy as np
import torch
from torch import Tensor, nn

from predictor import canonical
from predictor.artifact import Artifact, Manifest, encode_manifest
from predictor.call_context import NEVER, Deadline
from predictor.card import read_skill, start_note_of
from predictor.catalog import FeatureInfo, ModelInfo
from predictor.errors import ExplainUnsupportedError, QuantraError
from predictor.explain import (
    BarOcclusionExplainer,
    Baseline,
    Explainer,
    ExplanationCost,
    FeatureForecasts,
    FeatureOcclusionExplainer,
    ShapleyExplainer,
    TreeExplainer,
    build_attribution_view,
    count_forecasts,
    group_bars,
)
from predictor.features import FeatureDefinition, FittedFeatures, StaticFeatures
from predictor.forecast import Attribution, Detail, Forecast, TargetPoint
from predictor.inference import Engine, freeze
from predictor.instance import INTEGRATED_GRADIENTS, OCCLUSION, SHAPLEY, TREE_SHAP, ExplanationQuery, Instance
from predictor.internals import LAST_CLOSE, TRAINING_WINDOWS, Internal, InternalAxis
from predictor.model.explanations import check_tolerance, choose_method, compute_cost, index_targets
from predictor.model.predictor import (
    WINDOW_ROWS,
    ForecastSource,
    ModelIdentity,
    TwoStagePredictor,
    build_attribution,
    build_forecasts,
    list_default_targets,
    sum_groups,
)
from predictor.model.preparation import InstancePreparation
from predictor.model.prepared_instance import (
    PreparedInstance,
    TrainingSummary,
    find_data_warnings,
    limit_warnings,
    make_no_usable_symbol_error,
)
from predictor.model.runner import PanelRunner, RowRunner, Runner, stack_rows
from predictor.networks import (
    AdoptedForecaster,
    GraphForecaster,
    Internals,
    OutputMap,
    Target,
    TreesConfig,
    TreesForecaster,
)
from predictor.windows import Pipeline

EXPLAINED_AT_ONCE: Final = 32
"""Rows of one forward and backward pass on a CPU: about 15 ms, after which a prediction can interrupt."""

SHARE_KNOWN = "share of known cells"
"""The last variable of every past session."""

PRESENCE_MEANING = "1 if the known covariate has a value; otherwise 0, and the covariate is 0 too"
"""Meaning of the columns that mark whether a known covariate is present."""


class Model(TwoStagePredictor[PreparedInstance]):
    """One loaded model version. Thread-safe: it is immutable except for its cache of dates."""

    def __init__(
        self,
        identity: ModelIdentity,
        manifest: Manifest,
        pipeline: Pipeline,
        engine: Engine,
        runner: Runner,
        others: Mapping[str, Runner],
    ) -> None:
        """Store the parts; `runner` explains by the model's own method, `others` by further methods."""
        self.identity = identity
        self.manifest = manifest
        self.pipeline = pipeline
        self.engine = engine
        self.runner = runner
        self._others = others
        self.training_summary = TrainingSummary.of(manifest, pipeline)
        self._preparation = InstancePreparation(pipeline, together=not manifest.kind.is_panel_model)
        # everything that the forecasts depend on; the card does not count
        fingerprinted = f"{identity.weights_hash}|{pipeline.features.schema_hash}|{engine.name}|".encode()
        fingerprinted += canonical.to_bytes(encode_manifest(replace(manifest, card={})))
        self._source = ForecastSource(
            identity=identity,
            target=manifest.target,
            levels=manifest.quantiles,
            features=pipeline.features,
            baseline=_choose_baseline(manifest, list_methods(manifest)[0]),
            method=list_methods(manifest)[0],
            skill=read_skill(manifest.card),
            start_note=start_note_of(manifest.card),
            fingerprint=hashlib.sha256(fingerprinted).hexdigest(),
        )

    @classmethod
    @torch.inference_mode(mode=False)  # weights created in the caller's inference mode could not be explained
    def assemble(cls, identity: ModelIdentity, artifact: Artifact, *, device: torch.device, max_rows: int) -> Self:
        """Build the network, engine and attribution view of an artifact."""
        manifest = artifact.manifest
        network = freeze(artifact.network().to(device))
        output = build_output_map(manifest)
        baseline = Baseline(
            name=manifest.baseline.name,
            known=np.array(manifest.baseline.known, np.float32),
            static=np.array(manifest.baseline.static, np.float32),
            location=np.array(manifest.baseline.location),
            scale=np.array(manifest.baseline.scale),
        )
        engine = Engine(network, output, device=device, max_rows=max_rows)
        rows = max_rows if device.type == "cuda" else min(max_rows, EXPLAINED_AT_ONCE)
        if isinstance(network, AdoptedForecaster):
            in_steps = Engine(network, output, device=device, max_rows=rows)
            runner = RowRunner(engine, BarOcclusionExplainer(in_steps.compute_quantiles, output))
            return cls(identity, manifest, artifact.pipeline, engine, runner, {})
        members = _count_members(network)
        features = FeatureForecasts(
            network,
            output,
            baseline,
            known_groups=artifact.pipeline.features.known_groups,
            static_groups=artifact.pipeline.features.static_groups,
            device=torch.device("cpu") if isinstance(network, TreesForecaster) else device,  # NumPy evaluates trees
            max_rows=rows,
            members=members,
        )

        def run(explainer: Explainer | FeatureOcclusionExplainer | ShapleyExplainer) -> Runner:
            if isinstance(network, GraphForecaster):
                return PanelRunner(engine, explainer, universe=manifest.universe, neighbours=network.neighbours)
            return RowRunner(engine, explainer)

        runner = (
            RowRunner(engine, TreeExplainer(network, output, baseline))
            if isinstance(network, TreesForecaster)
            else run(Explainer(build_attribution_view(network), output, baseline, max_rows=rows, members=members))
        )
        trees = network if isinstance(network, TreesForecaster) else None
        others = {SHAPLEY: run(ShapleyExplainer(features, trees)), OCCLUSION: run(FeatureOcclusionExplainer(features))}
        return cls(identity, manifest, artifact.pipeline, engine, runner, others)

    def with_engine(self, engine: Engine) -> "Model":
        """The same model with another engine for its forecasts."""
        return Model(self.identity, self.manifest, self.pipeline, engine, self.runner.over(engine), self._others)

    def prepare_each(
        self, instances: Sequence[Instance], now: datetime, deadline: Deadline
    ) -> list[PreparedInstance | QuantraError]:
        """See `TwoStagePredictor.prepare_each`."""
        prepared = self._preparation.prepare_each(instances, now, deadline)
        return [
            self.identity.name_in_error(result)
            if isinstance(result, QuantraError)
            else self._add_warnings(instance, result)
            for instance, result in zip(instances, prepared, strict=True)
        ]

    def _add_warnings(self, instance: Instance, prepared: PreparedInstance) -> PreparedInstance:
        """Add the data warnings and this network's warnings."""
        if not prepared.warnings and not self.training_summary.may_warn(instance, prepared):
            return prepared
        warned = self.add_network_warnings(prepared)
        warnings = (*find_data_warnings((self.training_summary,), instance, warned.usable_symbols), *warned.warnings)
        return warned.with_warnings(limit_warnings(warnings)) if warnings else warned

    def add_network_warnings(self, prepared: PreparedInstance) -> PreparedInstance:
        """Add this network's warnings."""
        warnings = tuple(self.runner.warnings(prepared))
        return prepared.with_warnings((*prepared.warnings, *warnings)) if warnings else prepared

    def forecast(self, prepared: Sequence[PreparedInstance], deadline: Deadline = NEVER) -> list[Forecast]:
        """Forecast several instances; a row-wise network computes all of them in one pass.

        Raises:
            DeadlineExceededError, CallCancelledError: the call timed out or was cancelled.
        """
        rows = stack_rows(prepared)
        return build_forecasts(self._source, prepared, rows, self.runner.forecast(prepared, rows, deadline))

    def compute_units_in_float64(self, prepared: PreparedInstance) -> Tensor:
        """Compute quantiles [N, H, Q] in units of each window's scale, with the network in float64."""
        return self.runner.over(self.engine.in_float64()).compute_units(prepared)

    def explain(self, query: ExplanationQuery, now: datetime, deadline: Deadline) -> tuple[Attribution, ...]:
        """Explain one query; returns one attribution per target.

        Raises:
            RequestTooLargeError: the query may need more than `explain.MAX_ROWS`.
            QuantraError: see `prepare` and `attributions`.
        """
        self._cost(query).check()
        return self.attributions(query, self.prepare(query.instance, now), deadline)

    def attributions(
        self, query: ExplanationQuery, panel: PreparedInstance, deadline: Deadline
    ) -> tuple[Attribution, ...]:
        """Compute the attributions of a query with a prepared instance.

        Raises:
            ExplainUnsupportedError: the model does not support the method.
            UnknownHorizonError, UnknownQuantileError: a target that the model does not forecast.
            InvalidInputError: the tolerance is invalid, or a symbol is not in the instance.
            NoUsableSymbolError: no requested symbol can be forecast.
            RequestTooLargeError: too many targets and symbols for one explanation.
            QuantraError: the deadline passed.
        """
        method = choose_method(query.method, self.methods)
        if method == TREE_SHAP and query.detail is not Detail.FEATURES:
            raise ExplainUnsupportedError(
                f"detail is {query.detail.value!r}, but a model of trees reads each feature as one summary of its "
                f"sessions; ask for {Detail.FEATURES.value!r}"
            )
        source = replace(self._source, method=method, baseline=_choose_baseline(self.manifest, method))
        if method == SHAPLEY and query.detail is not Detail.FEATURES:
            raise ExplainUnsupportedError(
                f"detail is {query.detail.value!r}, but Shapley values are of a feature in all sessions; ask for "
                f"{Detail.FEATURES.value!r}"
            )
        if method == OCCLUSION and source.baseline != LAST_CLOSE and query.detail is not Detail.FEATURES:
            raise ExplainUnsupportedError(
                f"detail is {query.detail.value!r}, but occlusion hides a feature in all sessions at once; ask for "
                f"{Detail.FEATURES.value!r}"
            )
        if method == OCCLUSION and query.detail is Detail.CELLS:
            raise ExplainUnsupportedError(
                f"detail is {query.detail.value!r}, but occlusion hides groups of bars; ask for "
                f"{Detail.FEATURES.value!r} or {Detail.TIMES.value!r}"
            )
        check_tolerance(query.tolerance)
        targets = query.targets or self.default_targets()
        points = index_targets(targets, self.manifest.target, self.manifest.quantiles)
        prepared = panel.only(query.symbols)
        if not prepared.usable.any():
            raise make_no_usable_symbol_error(prepared.refusals)
        runner = self._others.get(method, self.runner)
        explained = runner.contributions(prepared, points, among=panel, tolerance=query.tolerance, deadline=deadline)
        weights = self.engine.compute_internals(prepared.inputs, deadline)
        features, target = self.pipeline.features, self.manifest.target
        internals = [() if weights is None else build_internals(weights, features, target, h) for h, _ in points]
        return tuple(
            build_attribution(source, prepared, target, contributions, query.detail, point_internals)
            for target, contributions, point_internals in zip(targets, explained, internals, strict=True)
        )

    def explain_cost(self, query: ExplanationQuery) -> int:
        """See `Predictor.explain_cost`."""
        return self._cost(query).rows

    def _cost(self, query: ExplanationQuery) -> ExplanationCost:
        targets = query.targets or self.default_targets()
        points = index_targets(targets, self.manifest.target, self.manifest.quantiles)
        forecasts = self.count_forecasts(choose_method(query.method, self.methods))
        return compute_cost(query, points, self.rows_per_window, forecasts=forecasts)

    def count_forecasts(self, method: str) -> int:
        """Forecasts of one window that an explanation of all its targets needs; 0 for gradients and paths of trees."""
        is_exact = method == SHAPLEY and self.manifest.kind.config is TreesConfig
        if is_exact or method not in {SHAPLEY, OCCLUSION}:
            return 0
        if self.manifest.kind.is_adopted:
            return 2 + len(group_bars(self.pipeline.encoder_length))
        features = self.pipeline.features
        groups = len(features.features.names) + len({*features.known_groups}) + len({*features.static_groups})
        groups += len(WINDOW_ROWS) + (self.rows_per_window > 1)
        return count_forecasts(groups) if method == SHAPLEY else 2 + groups

    @property
    def rows_per_window(self) -> int:
        """Input rows per forecast: 1, or a stock plus its neighbours."""
        return _count_members(self.engine.network) or 1

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods of its explanations, the default first."""
        return list_methods(self.manifest)

    def default_targets(self) -> tuple[TargetPoint, ...]:
        """See `Predictor.default_targets`."""
        return list_default_targets(self.manifest.target, self.manifest.quantiles)

    def info(self, aliases: tuple[str, ...], *, is_default: bool) -> ModelInfo:
        """Describe the model."""
        return describe_model(self.identity, self.manifest, self.pipeline, aliases, is_default=is_default)


def describe_model(
    identity: ModelIdentity, manifest: Manifest, pipeline: Pipeline, aliases: tuple[str, ...], *, is_default: bool
) -> ModelInfo:
    """Describe a model from its parts, without building the network."""
    features = pipeline.features.features
    return ModelInfo(
        name=identity.name,
        version=identity.version,
        aliases=aliases,
        is_default=is_default,
        kind=manifest.kind.name,
        observed_features=_list_features(features.observed),
        known_features=(
            *_list_features(features.known),
            *(
                FeatureInfo(name=name, expression="", meaning=PRESENCE_MEANING, unit="1")
                for name in pipeline.features.known_columns[len(features.known) :]
            ),
        ),
        static_features=_list_statics(pipeline.features.statics),
        covariates=pipeline.covariates,
        schema_hash=pipeline.features.schema_hash,
        encoder_length=pipeline.encoder_length,
        lookback=pipeline.lookback,
        bars_needed=pipeline.bars_needed,
        future_length=manifest.target.reach,
        horizons=manifest.target.horizons,
        is_scaled_per_horizon=pipeline.normaliser.is_per_horizon,
        quantiles=manifest.quantiles,
        lag=manifest.target.lag,
        target_kind=manifest.target.kind.value,
        calendar=pipeline.calendar.name,
        calendar_ends=pipeline.calendar.last,
        is_panel_model=manifest.kind.is_panel_model,
        explain_methods=list_methods(manifest),
        weights_hash=identity.weights_hash,
        card_json=canonical.to_bytes(manifest.card).decode(),
    )


def list_methods(manifest: Manifest) -> tuple[str, ...]:
    """The methods of a model's explanations, the default first."""
    if manifest.kind.is_adopted:
        return (OCCLUSION,)
    return (TREE_SHAP if manifest.kind.config is TreesConfig else INTEGRATED_GRADIENTS, SHAPLEY, OCCLUSION)


def _choose_baseline(manifest: Manifest, method: str) -> str:
    """The baseline of a model's explanations by a method."""
    if manifest.kind.is_adopted:
        return LAST_CLOSE
    return TRAINING_WINDOWS if method == TREE_SHAP else manifest.baseline.name


def build_internals(internals: Internals, features: FittedFeatures, target: Target, h: int) -> tuple[Internal, ...]:
    """Return the internals of N windows for horizon `h`; omits those that the network does not have.

    Variables have the names of an attribution's rows: a known or static feature with several columns is one variable,
    with the sum of its columns' weights. Session 0 is the last bar's. Sessions after the end of the horizon are left
    out, because the network does not attend to them.
    """
    known, ahead = features.features.known_names, target.lag + target.horizons[h]
    length, observed = internals.past.shape[1], len(features.features.names)
    variables = (*range(observed), *(observed + k for k in features.known_groups), observed + len(known))
    sessions = tuple("0" if k == 0 else f"{k:+d}" for k in range(1 - length, ahead + 1))
    inputs = InternalAxis.INPUTS
    entries = (
        (
            "selection of past variables",
            inputs,
            (*features.features.names, *known, SHARE_KNOWN),
            internals.past.mean(1),
            variables,
        ),
        ("selection of future variables", inputs, known, internals.future[:, :ahead].mean(1), features.known_groups),
        (
            "selection of static variables",
            inputs,
            features.statics.names,
            internals.static,
            range(internals.static.shape[1]),
        ),
        (
            "attention",
            InternalAxis.SESSIONS,
            sessions,
            internals.attention[:, h, : len(sessions)],
            range(len(sessions)),
        ),
    )
    return tuple(
        Internal(name=name, axis=axis, labels=labels, values=sum_groups(weights.double().numpy(), groups, len(labels)))
        for name, axis, labels, weights, groups in entries
        if labels
    )


def _count_members(network: nn.Module) -> int | None:
    """Return the number of stocks that one forecast depends on, itself included; None for a row-wise network."""
    return 1 + network.neighbours.shape[1] if isinstance(network, GraphForecaster) else None


def build_output_map(manifest: Manifest) -> OutputMap:
    """Build the output map from the manifest."""
    return OutputMap(
        spread=torch.from_numpy(manifest.target.spread),
        offsets=torch.tensor(manifest.conformal.offsets, dtype=torch.float64),
        levels=manifest.quantiles,
    )


def _list_features(definitions: Sequence[FeatureDefinition]) -> tuple[FeatureInfo, ...]:
    return tuple(
        FeatureInfo(name=d.name, expression=str(d.expression), meaning=d.meaning, unit=d.unit) for d in definitions
    )


def _list_statics(statics: StaticFeatures) -> tuple[FeatureInfo, ...]:
    """Describe each static variable; the meaning lists its columns in order."""
    numbers = (
        FeatureInfo(
            name=number.name,
            expression="",
            meaning=f"(number - {number.center:.6g}) / {number.scale:.6g}, 0 if unknown; then 1 if unknown, else 0",
            unit="standard deviations",
        )
        for number in statics.numbers
    )
    categories = (
        FeatureInfo(
            name=category.name,
            expression="",
            meaning=f"one column per category, 1 if it applies, else 0: {', '.join(category.categories)}, then unknown",
            unit="1",
        )
        for category in statics.categories
    )
    return (*numbers, *categories)
