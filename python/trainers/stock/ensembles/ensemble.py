"""Combination of trained artifacts into a calibrated and scored ensemble."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch

from predictor import artifact, canonical, golden
from predictor.artifact import Conformal, EnsembleManifest, StoredArtifact
from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.card import Card
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, shown_date
from predictor.model import UNITS, Ensemble, ModelIdentity
from predictor.registry import Runtime, claim_first_champion, load_single
from trainers.progress import StepProgress, no_progress
from trainers.stock import card
from trainers.stock.data import NO_SOURCE, ROWS
from trainers.stock.data_warnings import (
    Warn,
    check_bars,
    check_models,
    check_outcomes_vary,
    discard,
    emit,
    note_missing_bars,
)
from trainers.stock.evaluation.baselines import InformationSet, quick_baselines
from trainers.stock.evaluation.bound_model import EnsembleMembers
from trainers.stock.evaluation.comparison import ModelComparison, pinball
from trainers.stock.evaluation.evaluated_days import describe_origin, find_last_ever_seen, read_splits
from trainers.stock.evaluation.evaluation_set import EvaluationSet
from trainers.stock.evaluation.scores import ScoreRole, benchmark, score
from trainers.stock.network_forecasts import calibrate
from trainers.stock.splits import DataSplits, SplitPart

OURS = "this ensemble"


def find_common_splits(members: Mapping[str, DataSplits]) -> DataSplits:
    """The splits of an ensemble.

    Its train, calibration and test splits are the days that all members share. So calibration and test days come after
    all labels that any member was trained or selected on, and test days also after all calibration days. `selection`
    spans the selection splits of all members.

    Args:
        members: splits of each member.

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
        test=_find_shared_days("test", members, DataSplits.require_test),
    )


def _find_shared_days(
    name: str, members: Mapping[str, DataSplits], part_of: Callable[[DataSplits], SplitPart]
) -> SplitPart:
    """The days of a part that all members share."""
    parts = {member: part_of(splits) for member, splits in members.items()}
    latest = max(parts, key=lambda member: parts[member].first)
    earliest = min(parts, key=lambda member: parts[member].last)
    if parts[latest].first > parts[earliest].last:
        _refuse(name, earliest, parts[earliest], latest, parts[latest])
    return SplitPart(name, parts[latest].first, parts[earliest].last)


def _refuse(name: str, a: str, one: SplitPart, b: str, other: SplitPart) -> NoReturn:
    raise ConfigurationError(
        f"the {name} parts of {a}, {_format_range(one)}, and {b}, {_format_range(other)}, share no day; an ensemble is "
        "calibrated and scored on days after the training and selection of every member: train the members on the same "
        "splits (--splits), or leave one out"
    )


def _format_range(part: SplitPart) -> str:
    return f"{shown_date(part.first)} to {shown_date(part.last)}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JoinedEnsemble:
    """The result of combining artifacts."""

    folder: Path
    members: tuple[str, ...]
    """Names of the members."""
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
    covariates: CovariateSource = NO_SOURCE,
    announce: Callable[[str], None] = discard,
    warn: Warn = discard,
    stepwise: StepProgress = no_progress,
) -> JoinedEnsemble:
    """Combine artifacts, calibrate them as one model, score it against its members, and save it.

    The same bars and members give the same bytes.

    Args:
        bars: bars of the members' training, calibration and test splits.
        folders: artifact of each member, by member name.
        out: the ensemble's folder, which must not exist.
        covariates: files of the covariates that the members read.
        announce: receives the name of each stage.
        warn: receives warnings about the data; the card records them.
        stepwise: shows the progress of the scoring.

    Raises:
        ConfigurationError: `out` exists, members are incompatible or given twice, they share no calibration or test
            days, or the bars do not cover these.
        ArtifactError: a member is damaged, or its card lacks the training's record.
    """
    artifact.check_new_folder(out)
    announce(f"verifying {len(folders)} artifacts")
    stored = {name: _open_single(folder) for name, folder in folders.items()}
    _refuse_duplicates(stored)
    manifest = _build_manifest(stored)
    cards = {name: one.artifact.manifest.card for name, one in stored.items()}
    splits = find_common_splits({name: read_splits(one) for name, one in cards.items()})
    models = {name: load_single(folder, (name, 0), _RUNTIME) for name, folder in folders.items()}
    check_bars(bars, next(iter(models.values())).pipeline.calendar, splits)
    doubts = emit(check_models([*models.values()], bars, covariates), warn)
    announce("computing features")
    members = EnsembleMembers.over(bars, models, covariates)
    announce("calibrating, and scoring against the members and the baselines")
    manifest = replace(manifest, conformal=_fit_conformal(members, manifest, splits.calibration))
    manifest = replace(manifest, card=_build_card(members, manifest, splits, cards, doubts, stepwise))
    announce("recording the golden instance, and saving")
    ensemble = Ensemble(ModelIdentity(name="new", version=0, weights_hash=""), manifest, models)
    artifact.save_ensemble(out, manifest, folders, golden.record_ensemble(ensemble))
    claim_first_champion(out)
    return JoinedEnsemble(folder=out, members=tuple(folders), card=dict(manifest.card))


_RUNTIME = Runtime(torch.device("cpu"), ROWS)


def _open_single(folder: Path) -> StoredArtifact:
    if artifact.is_ensemble(folder):
        raise ConfigurationError(
            f"{folder} is an ensemble itself; give its members instead: {folder}/{artifact.MEMBERS}/NAME"
        )
    with artifact.name_folder_in_errors(folder):
        return artifact.load(folder)


def _refuse_duplicates(members: Mapping[str, StoredArtifact]) -> None:
    names: dict[str, str] = {}
    for name, member in members.items():
        other = names.setdefault(member.manifest_hash, name)
        if other != name:
            raise ConfigurationError(f"{other} and {name} are the same artifact; give it once")


def _build_manifest(members: Mapping[str, StoredArtifact]) -> EnsembleManifest:
    """The manifest with zero offsets and an empty card."""
    common = artifact.check_compatible({name: member.artifact for name, member in members.items()})
    horizons = len(common.target.horizons)
    none = ((0.0,) * len(common.quantiles),) * horizons
    return EnsembleManifest(
        members={name: member.manifest_hash for name, member in members.items()},
        target=common.target,
        quantiles=common.quantiles,
        calendar=common.calendar,
        conformal=Conformal(offsets=none, effective_samples=(0.0,) * horizons),
        card={},
    )


def _fit_conformal(members: EnsembleMembers, manifest: EnsembleManifest, part: SplitPart) -> Conformal:
    """Offsets of the ensemble: the mean of calibrated bands is usually too wide or too narrow."""
    windows = members.windows(part)
    unit = members.scale(windows) * manifest.target.spread
    raw = members.joined(manifest, windows, members.forecasts(windows)).raw
    return calibrate(
        raw / unit[..., None],
        members.first.outcomes(windows) / unit,
        manifest.quantiles,
        sessions=len(np.unique(windows.positions)),
        horizons=manifest.target.horizons,
    )


def _build_card(
    members: EnsembleMembers,
    manifest: EnsembleManifest,
    splits: DataSplits,
    cards: Mapping[str, Mapping[str, Json]],
    doubts: tuple[str, ...],
    stepwise: StepProgress,
) -> dict[str, Json]:
    history, windows = members.first, members.windows(splits.require_test())
    test = EvaluationSet.of(history, windows, manifest.quantiles)
    check_outcomes_vary(test)
    forecasts = members.forecasts(windows)
    ours = members.joined(manifest, windows, forecasts)
    plan = quick_baselines(manifest.target.kind, len(history.bars.symbols))
    seen = max(map(find_last_ever_seen, cards.values()))
    known = InformationSet.of(history, splits, seen, manifest.quantiles)
    result = benchmark(test, OURS, ours, known, plan, stepwise=stepwise)
    origins = [f"member {name}: {note}" for name, one in cards.items() for note in describe_origin(one)]
    rows = [
        score(test, one.calibrated, name=f"member {name}", role=ScoreRole.VARIANT, ranking=one.scores)
        for name, one in forecasts.items()
    ]
    contest = ModelComparison(test, pinball(test, ours.calibrated), among="members")
    for name, one in forecasts.items():
        contest.add(name, pinball(test, one.calibrated))
    return {
        "data": card.describe_data(history.bars, doubts),
        "covariates": {"sha256": history.covariates.digest()},
        "splits": card.describe_splits(splits, history),
        "libraries": card.list_libraries(),
        "scores": card.describe_scores(test, [*result.rows, *rows], unit=UNITS[manifest.target.kind]),
        "notes": [*origins, *note_missing_bars(history, windows, splits), *result.notes],
        "calibration": card.describe_calibration(test, ours),
        "skill": card.describe_skill(result.skill),
        "best_member": card.describe_skill(contest.skill),
        "conformal": card.describe_conformal(test, ours, manifest.conformal.effective_samples),
    }
