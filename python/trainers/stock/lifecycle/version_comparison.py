"""Comparison of two versions on the same symbols, on days that neither has seen in training."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from predictor.arrays import BoolArray, FloatArray
from predictor.bars import BarPanel
from predictor.call_context import NEVER
from predictor.canonical import Json
from predictor.card import read_weighting
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, InSampleError, format_count, format_date
from predictor.evidence import compare_losses, compute_challenger_alpha, compute_least_sequence_days
from predictor.lifecycle import Check
from predictor.model import Ensemble, build_output_map
from predictor.registry import CHAMPION, find_version, read_aliases
from trainers.stock.backtest.refits import Fold, RefitMaterial, WalkForwardPlan, split_sessions
from trainers.stock.backtest.source import ModelSource, TrainedModel, artifact_source
from trainers.stock.bar_requirements import check_sessions
from trainers.stock.card import identify_features
from trainers.stock.data import NO_COVARIATE_FILES, History
from trainers.stock.data_warnings import check_outcomes_vary, drop_before_calendar
from trainers.stock.evaluation.bound_model import EvaluatedModel, bind_model, find_calendar, find_trained_symbols
from trainers.stock.evaluation.comparison import LossComparison, average_days, compare, mark_inside, pinball
from trainers.stock.evaluation.evaluation import encode_plain
from trainers.stock.evaluation.evaluation_set import EvaluationSet, forecasts_of
from trainers.stock.model_fit import build_engine
from trainers.stock.recipe import ROLLING, SHARE, SPLIT, read_recipe
from trainers.stock.splits import SplitPart, select_unseen_part

WARM_UP = 600
"""Number of sessions before a fold that are encoded; recipes that read more are refused."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgedForecasts:
    """Forecasts of N windows and their outcomes."""

    test: EvaluationSet
    values: FloatArray
    """[N, H, Q] quantiles in the target's unit."""

    def shared_with(self, other: Self) -> tuple[Self, Self]:
        """Limit both to their common days and symbols.

        Raises:
            ConfigurationError: they have no common day of a common symbol.
        """
        width = 1 + max(int(self.test.symbols.max(initial=0)), int(other.test.symbols.max(initial=0)))
        ours, theirs = (version.test.positions * width + version.test.symbols for version in (self, other))
        shared = np.intersect1d(ours, theirs)
        if shared.size == 0:
            raise ConfigurationError("the versions forecast no common day of a common symbol; give more bars")
        return self._rows(np.isin(ours, shared)), other._rows(np.isin(theirs, shared))

    def _rows(self, mask: BoolArray) -> Self:
        return replace(self, test=self.test.rows(mask), values=self.values[mask])


def walk_forward(walked: RefitMaterial, folds: tuple[Fold, ...]) -> JudgedForecasts:
    """Train before each fold, and forecast its days.

    Raises:
        ConfigurationError: the bars are too few, or the recipe reads too many.
        LoopError: a training run failed.
    """
    parts = [_forecast_fold(walked, fold) for fold in folds]
    tests = [part.test for part in parts]
    return JudgedForecasts(
        test=replace(
            tests[0],
            outcomes=np.concatenate([test.outcomes for test in tests]),
            positions=np.concatenate([test.positions for test in tests]),
            symbols=np.concatenate([test.symbols for test in tests]),
        ),
        values=np.concatenate([part.values for part in parts]),
    )


def _forecast_fold(walked: RefitMaterial, fold: Fold) -> JudgedForecasts:
    sessions, recipe = walked.bars.sessions, walked.recipe
    first, last = (int(np.searchsorted(sessions, day)) for day in (fold.first, fold.last))
    artifact = walked.train(fold)
    if artifact.pipeline.bars_needed > WARM_UP:
        raise ConfigurationError(
            f"the recipe reads {artifact.pipeline.bars_needed} bars, but a walk forward encodes {WARM_UP} before its "
            "folds"
        )
    begin, end = max(0, first - WARM_UP), min(last + recipe.target.reach, len(sessions) - 1)
    fold_bars = walked.bars.between(int(sessions[begin]), int(sessions[end]))
    history = History(fold_bars, artifact.pipeline, walked.covariates)
    windows = history.windows(SplitPart("fold", int(sessions[first + recipe.target.lag + 1]), int(sessions[end])))
    engine, output = build_engine(artifact.network(), artifact.manifest), build_output_map(artifact.manifest)
    test = EvaluationSet.of(history, windows, recipe.quantiles)
    return JudgedForecasts(
        test=replace(test, sessions=sessions, positions=test.positions + begin),
        values=forecasts_of(engine, output, history, windows, artifact.manifest.universe).calibrated,
    )


MARGIN = 0.01
"""A refresh may lose this share more than the champion."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComparedVersion:
    """A loaded version of a model, to be compared with another."""

    reference: str
    """Such as mine@3."""
    model_folder: Path
    """The folder of the model's versions."""
    version: int
    source: ModelSource

    @property
    def trained_model(self) -> TrainedModel:
        """The trained model and the days that it has seen."""
        return self.source.require_trained_model()

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols that it learnt from."""
        return find_trained_symbols(self.trained_model.model)

    def has_recipe_of(self, other: "ComparedVersion") -> bool:
        """Whether both were trained by the same recipe, apart from their splits, on the same features.

        The members of an ensemble are compared by name; this one may have dropped some of the other's.
        """
        ours, theirs = (_list_recipes(version.trained_model.model) for version in (self, other))
        weightings = [read_weighting(version.source.card) for version in (self, other)]
        same_rule = len({None if weighting is None else weighting.rule for weighting in weightings}) == 1
        return same_rule and bool(ours) and all(theirs.get(name) == recipe for name, recipe in ours.items())


def _list_recipes(model: EvaluatedModel) -> dict[str, tuple[Json, Json]]:
    """Settings and features of each member of an ensemble, or of a model without a name; empty if one has no recipe.

    The splits, which move with the bars, and the device are left out.
    """
    networks = model.members if isinstance(model, Ensemble) else {"": model}
    recipes: dict[str, tuple[Json, Json]] = {}
    for name, network in networks.items():
        if "recipe" not in network.manifest.card:
            return {}
        settings = read_recipe(network.manifest.card["recipe"]).settings()
        identity = {
            key: value for key, value in settings.items() if not key.startswith((SHARE, SPLIT, ROLLING, "device"))
        }
        recipes[name] = (identity, identify_features(network.pipeline.features.features))
    return recipes


def load_version(models: Path, reference: str, covariates: CovariateSource = NO_COVARIATE_FILES) -> ComparedVersion:
    """Load a version by MODEL, MODEL@VERSION or MODEL@ALIAS.

    Raises:
        ModelNotFoundError, VersionNotFoundError: the model or version does not exist.
        ArtifactError: it is damaged, or its card lacks the splits.
    """
    model_folder, version = find_version(models, reference)
    source = artifact_source(model_folder / str(version), "cpu", covariates)
    return ComparedVersion(
        reference=f"{model_folder.name}@{version}", model_folder=model_folder, version=version, source=source
    )


def load_champion(model_folder: Path, covariates: CovariateSource = NO_COVARIATE_FILES) -> ComparedVersion | None:
    """Load the champion of the model in this folder; None if it has none. Raises as `load_version`."""
    number = read_aliases(model_folder).get(CHAMPION)
    return None if number is None else load_version(model_folder.parent, f"{model_folder.name}@{number}", covariates)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceBounds:
    """Bounds of a relative improvement that hold no matter how often you look; every day has the same weight."""

    alpha: float
    """Probability that a bound is ever wrong."""
    lower: float | None
    """None with too few days, as `upper`."""
    upper: float | None
    days_short: int
    """Further days that are needed for bounds; 0 if the days suffice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionComparison:
    """The losses of a challenger against those of a champion, paired by day."""

    champion: str
    """Such as mine@3."""
    challenger: str
    is_refresh: bool
    """Whether both have the same recipe."""
    is_copy: bool
    """Whether both forecast the same values on all days."""
    by: str
    """What was compared: versions, or recipes in a walk forward."""
    seen_by: str
    """The version that has seen the latest days in training; empty in a walk forward."""
    seen_until: int
    """Last session that it has seen, yyyymmdd; only later days count. 0 in a walk forward."""
    first_day: int
    """First decision day, yyyymmdd."""
    last_day: int
    days: int
    symbols: tuple[str, ...]
    champion_symbols: int
    """Number of symbols that the champion learnt from."""
    shared: int
    """How many of them were compared."""
    horizons: tuple[int, ...]
    losses: LossComparison
    """Positive where the challenger is better, with block-bootstrap intervals of one look."""
    bounds: SequenceBounds
    coverage: tuple[float, float]
    """Share of outcomes in the band of the champion and of the challenger."""
    promised: float
    """The share that the band promises."""

    @property
    def decision(self) -> bool | None:
        """Whether the challenger may replace the champion by its losses; None if that is undecided.

        A copy may not. A refresh must not be worse by more than MARGIN. A new recipe must be better. At least half of
        the symbols that the champion learnt from must be compared.
        """
        if self.is_copy:
            return False
        if not self.has_enough_symbols:
            return None
        min_gain = -MARGIN if self.is_refresh else 0.0
        if self.bounds.lower is None or self.bounds.upper is None:
            return None
        if self.bounds.lower > min_gain:
            return True
        return False if self.bounds.upper < min_gain else None

    @property
    def has_enough_symbols(self) -> bool:
        """Whether at least half of the symbols that the champion learnt from were compared."""
        return 2 * self.shared >= self.champion_symbols

    @property
    def need(self) -> str:
        """The condition of the decision, in words."""
        if self.is_refresh:
            return f"a refresh of the same recipe: not worse by more than {100 * MARGIN:g} %"
        return "a new recipe: better"

    @property
    def shown_symbols(self) -> str:
        """The number of symbols in words."""
        return format_count(len(self.symbols), "symbol")

    @property
    def sentence(self) -> str:
        """The comparison in words."""
        if self.is_copy:
            same = f"it forecasts the same values as {self.champion} on all {self.days} days"
            return f"{same}, so it is a copy: rejected"
        gain = self.losses.improvement.value
        summary = (
            f"mean loss {abs(100 * gain):.2f} % {'larger' if gain < 0 else 'smaller'} than that of {self.champion} on "
            f"{self.days} days of {self.shown_symbols}, {format_date(self.first_day)} to {format_date(self.last_day)}"
        )
        if not self.has_enough_symbols:
            return (
                f"{summary}; undecided: only {self.shared} of the {self.champion_symbols} symbols that {self.champion} "
                "learnt from were compared; give bars of at least half of them"
            )
        if self.bounds.lower is None or self.bounds.upper is None:
            return f"{summary}; undecided: {self.bounds.days_short} more days are needed for bounds"
        verdict = {True: "decided for it", False: "decided against it", None: "undecided"}[self.decision]
        bounds = f"{100 * self.bounds.lower:+.2f} to {100 * self.bounds.upper:+.2f} % smaller"
        return f"{summary}; averaged by day, {bounds}, no matter how often you look: {verdict}"

    def to_json(self) -> dict[str, Json]:
        """All fields, the decision and the sentence; NaN becomes null."""
        return {**encode_plain(asdict(self)), "decision": self.decision, "need": self.need, "sentence": self.sentence}


def compare_versions(
    champion: ComparedVersion,
    challenger: ComparedVersion,
    bars: BarPanel,
    *,
    start: int | None = None,
    check: Check = NEVER.check,
) -> VersionComparison:
    """Compare the forecasts of two versions on days after the training of both.

    Args:
        champion: the version to be replaced.
        challenger: the version to replace it.
        bars: with days after the training of both.
        start: first decision day, yyyymmdd; None for the first that neither has seen.
        check: called between steps, the longest of which computes all forecasts of a version.

    Raises:
        InSampleError: one has seen all the days; the message names it.
        ConfigurationError: the versions forecast different things, or the bars do not fit them.
        CovariateMissingError: no file has a covariate that one reads.
    """
    _check_comparable(champion, challenger)
    latest = max((champion, challenger), key=lambda compared: compared.trained_model.last_seen)
    target, calendar = champion.trained_model.model.manifest.target, find_calendar(latest.trained_model.model)
    try:
        part = select_unseen_part(bars.sessions, latest.trained_model.last_seen, target, calendar, start=start)
    except InSampleError as error:
        walk = ", or compare their recipes in a walk forward (--start DATE --refit 63)"
        instead = "" if challenger.has_recipe_of(champion) else walk
        raise InSampleError(
            f"{champion.reference} and {challenger.reference} cannot be compared on these days, because "
            f"{latest.reference} has seen labels up to {format_date(latest.trained_model.last_seen)}: give later "
            f"bars{instead}"
        ) from error
    for version in (champion, challenger):
        bars = drop_before_calendar(bars, find_calendar(version.trained_model.model))
        check_sessions(bars, find_calendar(version.trained_model.model))
    forecasts: list[JudgedForecasts] = []
    for version in (champion, challenger):
        model = version.trained_model.model
        check()
        bound_model = bind_model(model, bars, version.source.covariates)
        windows = bound_model.windows(part)
        check()
        test = EvaluationSet.of(bound_model.history, windows, model.manifest.quantiles)
        forecasts.append(JudgedForecasts(test=test, values=bound_model.forecasts(windows).calibrated))
    check()
    return _compare(champion, challenger, bars, forecasts[0], forecasts[1], by="versions", latest=latest)


def compare_recipes(
    champion: ComparedVersion, challenger: ComparedVersion, bars: BarPanel, *, start: int, refit: int
) -> VersionComparison:
    """Compare the recipes of two versions in a walk forward, which trains both again on earlier bars.

    The result is too optimistic for a recipe whose settings were chosen on these days. `start` is the first decision
    day, yyyymmdd, and `refit` the sessions between trainings.

    Raises:
        ConfigurationError: a version is an ensemble, both have the same recipe or forecast different things, or the
            bars are too few.
        LoopError: a training run failed.
    """
    _check_comparable(champion, challenger)
    if challenger.has_recipe_of(champion):
        raise ConfigurationError(
            f"{challenger.reference} and {champion.reference} have the same recipe, so a walk forward cannot tell "
            "them apart; leave out --refit, and give bars after the training of both"
        )
    reach = champion.trained_model.model.manifest.target.reach
    end = int(bars.sessions[max(0, len(bars.sessions) - 1 - reach)])
    folds = split_sessions(bars.sessions, WalkForwardPlan(start=start, end=end, refit=refit))
    forecasts = [
        walk_forward(
            RefitMaterial(
                bars=bars,
                features=version.source.features,
                recipe=version.source.known_recipe(),
                covariates=version.source.covariates,
                edges=version.source.user_edges(bars.symbols),
            ),
            folds,
        )
        for version in (champion, challenger)
    ]
    return _compare(
        champion, challenger, bars, forecasts[0], forecasts[1], by=f"recipes, trained every {refit} sessions"
    )


def _check_comparable(champion: ComparedVersion, challenger: ComparedVersion) -> None:
    if champion.reference == challenger.reference:
        raise ConfigurationError(f"{champion.reference} is compared with itself; name two versions")
    ours, theirs = (version.trained_model.model.manifest for version in (challenger, champion))
    different = [
        f"{setting} {mine} and {other}"
        for setting, mine, other in (
            ("target", ours.target.kind.value, theirs.target.kind.value),
            ("lag", ours.target.lag, theirs.target.lag),
            ("horizons", list(ours.target.horizons), list(theirs.target.horizons)),
            ("quantiles", list(ours.quantiles), list(theirs.quantiles)),
        )
        if mine != other
    ]
    if different:
        raise ConfigurationError(
            f"{challenger.reference} and {champion.reference} forecast different things: {'; '.join(different)}; "
            "compare versions with the same target, lag, horizons and quantiles"
        )


def _compare(
    champion: ComparedVersion,
    challenger: ComparedVersion,
    bars: BarPanel,
    old: JudgedForecasts,
    new: JudgedForecasts,
    *,
    by: str,
    latest: ComparedVersion | None = None,
) -> VersionComparison:
    old, new = old.shared_with(new)
    test = old.test
    check_outcomes_vary(test)
    first, last = test.span
    inside = [float(np.nanmean(mark_inside(test, version.values))) for version in (old, new)]
    before, after = (pinball(test, version.values) for version in (old, new))
    daily = np.stack([average_days(test, losses) for losses in (before, after)])
    daily = daily[:, np.isfinite(daily).all(axis=0)]
    compared = tuple(bars.symbols[row] for row in np.unique(test.symbols))
    return VersionComparison(
        champion=champion.reference,
        challenger=challenger.reference,
        is_refresh=challenger.has_recipe_of(champion),
        is_copy=np.array_equal(old.values, new.values, equal_nan=True),
        by=by,
        seen_by="" if latest is None else latest.reference,
        seen_until=0 if latest is None else latest.trained_model.last_seen,
        first_day=first,
        last_day=last,
        days=test.days,
        symbols=compared,
        champion_symbols=len(champion.symbols),
        shared=len(champion.symbols.intersection(compared)),
        horizons=test.horizons,
        losses=compare(test, after, before, champion.reference),
        bounds=_compute_bounds(
            daily[0], daily[1], test.horizons[-1], compute_challenger_alpha(_number_attempt(champion, challenger))
        ),
        coverage=(inside[0], inside[1]),
        promised=test.levels[-1] - test.levels[0],
    )


def _number_attempt(champion: ComparedVersion, challenger: ComparedVersion) -> int:
    """A number of its own for each challenger of a champion: odd for later versions, even for earlier ones."""
    later = challenger.version - champion.version if challenger.model_folder == champion.model_folder else 1
    return 2 * later - 1 if later > 0 else -2 * later


def _compute_bounds(theirs: FloatArray, ours: FloatArray, horizon: int, alpha: float) -> SequenceBounds:
    """Bounds relative to the mean of their daily losses [D]."""
    test = compare_losses(theirs, ours, horizon=horizon, alpha=alpha)
    scale = test.their_loss
    short = max(0, compute_least_sequence_days(horizon) - test.days)
    if short or scale <= 0:
        return SequenceBounds(alpha=alpha, lower=None, upper=None, days_short=short)
    return SequenceBounds(alpha=alpha, lower=test.lower / scale, upper=test.upper / scale, days_short=0)
