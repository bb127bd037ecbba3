"""Combination of trained artifacts into a calibrated and scored ensemble.

Members are chosen and weighted by their forecasts of the calibration days. On these days each member has learnt only
its offsets, as many as every other; the selection days would favour networks, which chose their epoch there. Weights
fitted on few independent days lose to equal ones. So members that are significantly worse than the best are left out
and the rest is averaged; fitted weights are used only as far as the number of independent blocks allows.

Shapes: N windows, H horizons, Q quantiles, M members.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, Self, get_args

import numpy as np
import torch

from predictor import artifact, canonical, golden
from predictor.arrays import FloatArray
from predictor.artifact import CommonSettings, Conformal, EnsembleManifest, StoredArtifact
from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.card import Card, RefutedMember
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, format_date
from predictor.model import UNITS, Ensemble, ModelIdentity, weigh_quantiles
from predictor.registry import Runtime, claim_first_champion, load_single
from trainers.progress import StepProgress, no_progress
from trainers.stock import card
from trainers.stock.data import NO_COVARIATE_FILES, WINDOWS_PER_BATCH, TrainingWindows
from trainers.stock.data_warnings import (
    Warn,
    check_bars,
    check_outcomes_vary,
    discard,
    emit,
    find_model_warnings,
    note_missing_bars,
)
from trainers.stock.evaluation.baselines import InformationSet, quick_baselines
from trainers.stock.evaluation.bound_model import EnsembleMembers
from trainers.stock.evaluation.comparison import ModelComparison, average_horizons, measure_improvement, pinball
from trainers.stock.evaluation.evaluation_set import EvaluationSet, ModelForecasts
from trainers.stock.evaluation.scores import ScoreRole, benchmark, score
from trainers.stock.network_forecasts import calibrate
from trainers.stock.splits import DataSplits, SplitPart, describe_origin, find_last_ever_seen, read_splits

WeightRule = Literal["equal", "screened", "fitted"]
"""equal: all members; screened: equal, without refuted members; fitted: screened, then leaning to fitted weights."""


def read_weight_rule(text: str) -> WeightRule:
    """Read the rule in an ensemble's card.

    Raises:
        ConfigurationError: this version does not know the rule.
    """
    for rule in get_args(WeightRule):
        if text == rule:
            return rule
    raise ConfigurationError(f"the ensemble's weights are {text!r}, which this version does not know; update Quantra")


MIN_BLOCKS_TO_FIT: Final = 16
"""Independent blocks below which fitted weights lose to equal ones."""

BLOCKS_OF_HALF_WEIGHT: Final = 40
"""Independent blocks at which fitted and equal weights are averaged evenly."""

STEPS: Final = 2000
"""Steps of the fit; the mean of the later half is the result."""

RATE: Final = 10.0
"""Length of the first step, relative to the distance between the members. Losses then end within .01 % of the least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberChoice:
    """The members to combine and their weights, and the days that these were chosen on."""

    rule: WeightRule
    first: int
    """First decision day, yyyymmdd."""
    last: int
    days: int
    blocks: int
    """Independent blocks of these days."""
    days_short: int
    """Days missing to refute any member; 0 if there are enough."""
    kept: tuple[str, ...]
    refuted: tuple[RefutedMember, ...]
    weights: tuple[tuple[float, ...], ...] = ()
    """[M][Q] of the members that are kept; empty: all are equal."""
    lean: float = 0.0
    """Share of the fitted weights in `weights`, the rest of which are equal."""


def choose_members(part: EvaluationSet, forecasts: Mapping[str, FloatArray], rule: WeightRule) -> MemberChoice:
    """Choose and weigh members by their calibrated forecasts [N, H, Q].

    Raises:
        ConfigurationError: the part has too few blocks for fitted weights.
    """
    blocks = count_blocks(part)
    if rule == "fitted" and blocks < MIN_BLOCKS_TO_FIT:
        raise ConfigurationError(
            f"the calibration days that all members share hold {blocks} independent blocks of {part.wanted_block} "
            f"sessions, but fitted weights need {MIN_BLOCKS_TO_FIT}, or they are worse than equal ones; use "
            "--weights screened, or train the members with a longer calibration part (--splits)"
        )
    losses = {name: average_horizons(part, pinball(part, quantiles)) for name, quantiles in forecasts.items()}
    refuted = screen_members(part, losses)
    names = tuple(name for name in forecasts if name not in {member.name for member in refuted})
    first, last = part.span
    choice = MemberChoice(
        rule=rule,
        first=first,
        last=last,
        days=part.days,
        blocks=blocks,
        days_short=part.days_short,
        kept=names,
        refuted=refuted,
    )
    if rule == "screened" or len(names) == 1:
        return choice
    lean = blocks / (blocks + BLOCKS_OF_HALF_WEIGHT)
    weights = lean_weights(fit_weights(part, [forecasts[name] for name in names]), lean)
    return replace(choice, weights=tuple(map(tuple, weights.tolist())), lean=lean)


def count_blocks(part: EvaluationSet) -> int:
    """Number of independent blocks of decision days."""
    return part.days // part.wanted_block


def screen_members(part: EvaluationSet, losses: Mapping[str, FloatArray]) -> tuple[RefutedMember, ...]:
    """Members whose losses [N] are significantly above those of the best, by a paired bootstrap of blocks of days.

    None is refuted if the days are too few to tell skill from luck.
    """
    if part.days_short:
        return ()
    best = min(losses, key=lambda name: float(np.nanmean(losses[name])))
    gains = {name: measure_improvement(part, loss, losses[best]) for name, loss in losses.items() if name != best}
    return tuple(
        RefutedMember(name=name, rival=best, improvement=gain.value, lower=gain.lower, upper=gain.upper)
        for name, gain in gains.items()
        if gain.upper < 0
    )


def fit_weights(part: EvaluationSet, members: Sequence[FloatArray]) -> FloatArray:
    """[M, Q] weights of forecasts [N, H, Q] with the smallest pinball loss; horizons count as in `average_horizons`.

    Each weight is 0 or more, and their sum is 1 per quantile.
    """
    is_known = np.isfinite(part.outcomes)
    importance = (is_known / (part.spread * np.maximum(is_known.sum(axis=1, keepdims=True), 1)))[is_known]
    outcomes = part.outcomes[is_known]
    return np.stack(
        [
            _fit_quantile(
                level, outcomes, np.stack([member[..., q][is_known] for member in members], axis=1), importance
            )
            for q, level in enumerate(part.levels)
        ],
        axis=1,
    )


def _fit_quantile(level: float, outcomes: FloatArray, quantiles: FloatArray, importance: FloatArray) -> FloatArray:
    """[M] weights of quantiles [K, M], by exponentiated subgradients (Kivinen & Warmuth 1997)."""
    apart = quantiles - quantiles.mean(axis=1, keepdims=True)
    reach = float(np.max(np.abs(apart).T @ importance))
    count = quantiles.shape[1]
    if reach == 0:  # the members agree
        return np.full(count, 1 / count)
    logits, total = np.zeros(count), np.zeros(count)
    for step in range(STEPS):
        weights = np.exp(logits - logits.max())
        weights /= weights.sum()
        if step >= STEPS // 2:
            total += weights
        misses = np.where(outcomes < quantiles @ weights, level - 1, level)
        logits += RATE * (apart.T @ (importance * misses)) / (reach * np.sqrt(step + 1))
    return total / total.sum()


def lean_weights(fitted: FloatArray, lean: float) -> FloatArray:
    """[M, Q] weights between equal ones (`lean` 0) and fitted ones [M, Q] (`lean` 1)."""
    return lean * fitted + (1 - lean) / len(fitted)


ENSEMBLE_NAME = "this ensemble"


def find_common_splits(members: Mapping[str, DataSplits], *, is_scored: bool = True) -> DataSplits:
    """The splits of an ensemble.

    Its train, calibration and test splits are the days that all members share. So calibration and test days come after
    all labels that any member was trained or selected on, and test days also after all calibration days. `selection`
    spans the selection splits of all members. If it is not scored, it has no test split, and those of the members are
    ignored.

    Raises:
        ConfigurationError: the members share no training, calibration or test days.
    """
    return DataSplits(
        train=_find_shared_days("train", members, lambda splits: splits.train),
        selection=SplitPart(
            "selection",
            min(splits.selection.first for splits in members.values()),
            max(splits.selection.last for splits in members.values()),
        ),
        calibration=_find_shared_days("calibration", members, lambda splits: splits.calibration),
        test=_find_shared_days("test", members, DataSplits.require_test) if is_scored else None,
    )


def _find_shared_days(
    name: str, members: Mapping[str, DataSplits], part_of: Callable[[DataSplits], SplitPart]
) -> SplitPart:
    """The days of a part that all members share."""
    parts = {member: part_of(splits) for member, splits in members.items()}
    latest = max(parts, key=lambda member: parts[member].first)
    earliest = min(parts, key=lambda member: parts[member].last)
    if parts[latest].first > parts[earliest].last:
        first, second = (
            f"{member}, {format_date(parts[member].first)} to {format_date(parts[member].last)}"
            for member in (earliest, latest)
        )
        raise ConfigurationError(
            f"the {name} parts of {first}, and {second}, share no day; an ensemble is calibrated and scored on days "
            "after the training and selection of every member: train the members on the same splits (--splits), or "
            "leave one out"
        )
    return SplitPart(name, parts[latest].first, parts[earliest].last)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JoinedEnsemble:
    """The result of combining artifacts."""

    folder: Path
    members: tuple[str, ...]
    """Names of the members, without those that were refuted."""
    refuted: tuple[RefutedMember, ...]
    """Members that were left out, and why."""
    card: dict[str, Json]
    """As in the manifest."""

    @property
    def summary(self) -> Card:
        """The card in typed parts, for people."""
        return Card.from_json(canonical.to_bytes(self.card).decode())


def join(
    bars: BarPanel,
    folders: Mapping[str, Path],
    out: Path,
    *,
    rule: WeightRule = "screened",
    is_scored: bool = True,
    sections: Mapping[str, Json] = MappingProxyType({}),
    covariates: CovariateSource = NO_COVARIATE_FILES,
    announce: Callable[[str], None] = discard,
    warn: Warn = discard,
    track_steps: StepProgress = no_progress,
) -> JoinedEnsemble:
    """Combine artifacts, calibrate them as one model, score it against its members if asked, and save it.

    The same bars and members give the same bytes, in any order. If one member refutes all others, the ensemble has one
    member, which it calibrates again.

    Args:
        bars: bars of the members' training, calibration and test splits.
        folders: artifact of each member, by member name.
        out: the ensemble's folder, which must not exist.
        rule: how the members are chosen and weighted.
        is_scored: whether to score the ensemble on the members' common test days; if False, they need none.
        sections: further sections of the card.
        covariates: files of the covariates that the members read.
        announce: receives the name of each stage.
        warn: receives warnings about the data; the card records them.
        track_steps: shows the progress of the scoring.

    Raises:
        ConfigurationError: `out` exists, members are incompatible or given twice, they share no calibration or test
            days, these are too few for fitted weights, or the bars do not cover them.
        ArtifactError: a member is damaged, or its card lacks the training's record.
    """
    artifact.check_new_folder(out)
    announce(f"verifying {len(folders)} artifacts")
    loaded_members = _load_members(folders)
    shared = artifact.check_compatible({name: member.artifact for name, member in loaded_members.items()})
    cards = {name: member.artifact.manifest.card for name, member in loaded_members.items()}
    splits = find_common_splits(
        {name: read_splits(member_card) for name, member_card in cards.items()}, is_scored=is_scored
    )
    models = {name: load_single(folders[name], (name, 0), _RUNTIME) for name in loaded_members}
    check_bars(bars, next(iter(models.values())).pipeline.calendar, splits)
    warnings = emit(find_model_warnings([*models.values()], bars, covariates), warn)
    announce("computing features")
    members = EnsembleMembers.over(bars, models, covariates)
    announce("comparing the members, and calibrating their mean")
    calibration = _PartForecasts.of(members, splits.calibration, shared.quantiles)
    choice = calibration.choose(rule)
    equal = calibration.calibrate(_build_manifest(shared, loaded_members))
    ours = equal
    if choice is not None:
        kept_members = {name: loaded_members[name] for name in choice.kept}
        ours = calibration.calibrate(_build_manifest(shared, kept_members, choice.weights))
    origins = [f"member {name}: {note}" for name, member_card in cards.items() for note in describe_origin(member_card)]
    scores: dict[str, Json] = {"notes": [*origins, card.NO_TEST]}
    effect: dict[str, Json] = {}
    if splits.test is not None:
        announce("scoring against the members and the baselines")
        test = _PartForecasts.of(members, splits.test, shared.quantiles)
        check_outcomes_vary(test.outcomes)
        scores = _describe_scores(test, ours, splits, cards, origins, track_steps)
        effect = _describe_effect(test, ours, equal)
    weighting = {} if choice is None else {"weighting": _describe_weighting(choice) | effect}
    history = members.first
    training: dict[str, Json] = {
        "data": card.encode_data(history.bars, warnings),
        "covariates": {"sha256": history.covariates.digest()},
        "splits": card.encode_splits(splits, history),
        "libraries": card.list_libraries(),
    }
    content = training | scores | weighting | dict(sections)
    manifest = replace(ours, card=content)
    announce("recording the golden instance, and saving")
    combined = members.only(tuple(manifest.members)).models
    ensemble = Ensemble(ModelIdentity(name="new", version=0, weights_hash=""), manifest, combined)
    artifact.save_ensemble(out, manifest, folders, golden.record_ensemble(ensemble))
    claim_first_champion(out)
    return JoinedEnsemble(
        folder=out,
        members=tuple(manifest.members),
        refuted=() if choice is None else choice.refuted,
        card=dict(manifest.card),
    )


_RUNTIME = Runtime(torch.device("cpu"), WINDOWS_PER_BATCH)


def _load_members(folders: Mapping[str, Path]) -> dict[str, StoredArtifact]:
    """Load different artifacts, each of one model."""
    members: dict[str, StoredArtifact] = {}
    names: dict[str, str] = {}
    for name, folder in sorted(folders.items()):
        if artifact.is_ensemble(folder):
            raise ConfigurationError(
                f"{folder} is an ensemble itself; give its members instead: {folder}/{artifact.MEMBERS}/NAME"
            )
        with artifact.name_folder_in_errors(folder):
            members[name] = artifact.load(folder)
        first = names.setdefault(members[name].manifest_hash, name)
        if first != name:
            raise ConfigurationError(f"{first} and {name} are the same artifact; give it once")
    return members


def _build_manifest(
    shared: CommonSettings, members: Mapping[str, StoredArtifact], weights: tuple[tuple[float, ...], ...] = ()
) -> EnsembleManifest:
    """The manifest with zero offsets and an empty card."""
    horizons = len(shared.target.horizons)
    none = ((0.0,) * len(shared.quantiles),) * horizons
    return EnsembleManifest(
        members={name: member.manifest_hash for name, member in members.items()},
        target=shared.target,
        quantiles=shared.quantiles,
        calendar=shared.calendar,
        conformal=Conformal(offsets=none, effective_samples=(0.0,) * horizons),
        weights=weights,
        card={},
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _PartForecasts:
    """The members' forecasts of one part."""

    members: EnsembleMembers
    windows: TrainingWindows
    by_member: Mapping[str, ModelForecasts]
    outcomes: EvaluationSet

    @classmethod
    def of(cls, members: EnsembleMembers, part: SplitPart, quantiles: tuple[float, ...]) -> Self:
        """Forecasts of the windows that every member can forecast."""
        windows = members.windows(part)
        outcomes = EvaluationSet.of(members.first, windows, quantiles)
        return cls(members=members, windows=windows, by_member=members.forecasts(windows), outcomes=outcomes)

    def choose(self, rule: WeightRule) -> MemberChoice | None:
        """The members and their weights; None for equal weights of all."""
        calibrated = {name: member.calibrated for name, member in self.by_member.items()}
        return None if rule == "equal" else choose_members(self.outcomes, calibrated, rule)

    def combine(self, manifest: EnsembleManifest) -> ModelForecasts:
        """Forecasts of an ensemble of the members."""
        return self.members.combine(manifest, self.windows, self.by_member)

    def calibrate(self, manifest: EnsembleManifest) -> EnsembleManifest:
        """The manifest with offsets: the mean of calibrated bands is usually too wide or too narrow."""
        unit = self.members.only(tuple(manifest.members)).scale(self.windows) * manifest.target.spread
        conformal = calibrate(
            self.combine(manifest).raw / unit[..., None],
            self.outcomes.outcomes / unit,
            manifest.quantiles,
            sessions=self.outcomes.days,
            horizons=manifest.target.horizons,
        )
        return replace(manifest, conformal=conformal)


def _describe_scores(
    forecast: _PartForecasts,
    manifest: EnsembleManifest,
    splits: DataSplits,
    cards: Mapping[str, Mapping[str, Json]],
    origins: Sequence[str],
    track_steps: StepProgress,
) -> dict[str, Json]:
    """The sections of the card on the test days."""
    history, test, ours = forecast.members.first, forecast.outcomes, forecast.combine(manifest)
    plan = quick_baselines(manifest.target.kind, len(history.bars.symbols))
    last_seen = max(map(find_last_ever_seen, cards.values()))
    information = InformationSet.of(history, splits, last_seen, manifest.quantiles)
    result = benchmark(test, ENSEMBLE_NAME, ours, information, plan, track_steps=track_steps)
    rows = [
        score(test, member.calibrated, name=f"member {name}", role=ScoreRole.VARIANT, ranking=member.scores)
        for name, member in forecast.by_member.items()
    ]
    contest = ModelComparison(test, pinball(test, ours.calibrated), among="members")
    for name, member in forecast.by_member.items():
        contest.add(name, pinball(test, member.calibrated))
    return {
        "scores": card.encode_scores(test, [*result.rows, *rows], unit=UNITS[manifest.target.kind]),
        "notes": [*origins, *note_missing_bars(history, forecast.windows, splits), *result.notes],
        "calibration": card.encode_calibration(test, ours),
        "skill": card.encode_skill(result.skill),
        "best_member": card.encode_skill(contest.skill),
        "conformal": card.encode_conformal(test, ours, manifest.conformal.effective_samples),
    }


def _describe_weighting(choice: MemberChoice) -> dict[str, Json]:
    """How the members were chosen."""
    return {
        "rule": choice.rule,
        "first": choice.first,
        "last": choice.last,
        "days": choice.days,
        "blocks": choice.blocks,
        "days_short": choice.days_short,
        "refuted": [asdict(member) for member in choice.refuted],
        "lean": choice.lean,
        "crossed": 0,
    }


def _describe_effect(forecast: _PartForecasts, ours: EnsembleManifest, equal: EnsembleManifest) -> dict[str, Json]:
    """Test forecasts whose quantiles crossed, and the loss relative to that of equal weights for all members."""
    quantiles = [forecast.by_member[name].calibrated for name in ours.members]
    crossed = (np.diff(weigh_quantiles(ours.weights, quantiles), axis=-1) < 0).any(axis=-1).sum() if ours.weights else 0
    effect: dict[str, Json] = {"crossed": int(crossed)}
    if ours != equal:
        test = forecast.outcomes
        losses = [
            average_horizons(test, pinball(test, forecast.combine(weights).calibrated)) for weights in (ours, equal)
        ]
        gain = measure_improvement(test, *losses)
        effect["regret"] = [-gain.value, -gain.upper, -gain.lower]
    return effect
