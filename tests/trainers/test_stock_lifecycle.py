"""The life of a model after its first training: retrained, compared, promoted and rolled back."""

import hashlib
import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifacts import save_artifact
from audits import audit_record
from command_exits import interrupted_at, program_exit_code
from ledger_records import forecast_record
from market import bokeh_panel

from predictor import artifact
from predictor.artifact import load
from predictor.audit_record import AuditVerdict, locate_audit, write_audit
from predictor.bars import BarPanel
from predictor.call_context import CallContext
from predictor.card import Card
from predictor.errors import CallCancelledError, ConfigurationError, InSampleError
from predictor.evidence import compute_challenger_alpha
from predictor.features import load_default_features
from predictor.ledger import ForecastRecord, ForecastRole, Ledger, LedgerEvent
from predictor.networks import LSTMConfig, Target
from predictor.registry import read_aliases, read_moves
from trainers.cli.commands import app
from trainers.progress import ReportConsumer
from trainers.stock import (
    DataSplits,
    Optimisation,
    ParentArtifact,
    RollingSplits,
    StockRecipe,
    TrainingMaterial,
    TrainingResult,
    train,
)
from trainers.stock.backtest.refits import RefitMaterial, WalkForwardPlan, split_sessions
from trainers.stock.ensembles import JoinedEnsemble, join
from trainers.stock.ensembles.ensemble import WeightRule
from trainers.stock.evaluation.bound_model import bind_model
from trainers.stock.feature_cache import FeatureCache
from trainers.stock.lifecycle import check_gates, compare_recipes, compare_versions, plan_retraining, promote, retrain
from trainers.stock.lifecycle.promotion import list_failed
from trainers.stock.lifecycle.version_comparison import (
    ComparedVersion,
    SequenceBounds,
    VersionComparison,
    load_version,
    walk_forward,
)
from trainers.stock.recipe import recipe_of
from trainers.stock.splits import SplitPart
from trainers.stock.training_jobs import PlannedTraining, TrainingRunner

FIRST, SECOND = 20091231, 20101231
"""The ends of the bars of versions 1 and 2."""
HAR = replace(
    recipe_of("har"),
    calendar="XNYS",
    target=Target(horizons=(1, 3)),
    encoder_length=10,
    parts=RollingSplits(selection=40, calibration=120),
)
"""A recipe whose training takes no time."""
LSTM = replace(
    HAR,
    kind="lstm",
    scale="har",
    config=LSTMConfig(hidden=4, layers=1),
    optimisation=Optimisation(max_epochs=1, device="cpu"),
)
EVIDENCE = ("losses", "shadow", "replay")
"""The gates that fail without bars and a ledger."""
Capture = pytest.CaptureFixture[str]


@cache
def bars(until: int = 20120629) -> BarPanel:
    return bokeh_panel("AAPL", "IBM").between(20070103, until)


def save_version(line: Path, version: int, until: int, recipe: StockRecipe = HAR, *symbols: str) -> None:
    known = bars(until).select(symbols or ("AAPL", "IBM"))
    train(TrainingMaterial(known, load_default_features()), recipe, line / str(version), consume=iter)


@pytest.fixture(scope="module")
def saved_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`mine`: version 1, the champion; 2, by the same recipe on newer bars; 3, by another one; 4, of one stock."""
    models = tmp_path_factory.mktemp("models")
    save_version(models / "mine", 1, FIRST)
    save_version(models / "mine", 2, SECOND)
    save_version(models / "mine", 3, FIRST, LSTM)
    save_version(models / "mine", 4, FIRST, HAR, "IBM")
    return models


@pytest.fixture
def models(saved_models: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved_models, tmp_path / "models"))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Files of bars up to the end of version 1's training, of version 2's, and later."""
    found = {"first": FIRST, "second": SECOND, "later": 20120629}
    for name, until in found.items():
        bars(until).write_csv(tmp_path / f"{name}.csv")
    return {name: tmp_path / f"{name}.csv" for name in found}


def pair_of(models: Path, first: str = "mine@1", second: str = "mine@2") -> tuple[ComparedVersion, ComparedVersion]:
    return load_version(models, first), load_version(models, second)


def champion_of(models: Path) -> int:
    return read_aliases(models / "mine")["champion"]


def card_of(folder: Path) -> dict[str, Any]:
    return dict(load(folder).artifact.manifest.card)


# --- retraining


def test_a_retraining_writes_the_next_version_by_the_champions_recipe_and_moves_no_alias(
    models: Path, files: dict[str, Path]
) -> None:
    assert program_exit_code(app, "retrain", "mine", "--models", models, "--bars", files["second"], "--json") == 0
    old, new = (card_of(models / "mine" / version) for version in "15")
    assert new["recipe"] == old["recipe"]
    assert new["retraining"] == {
        "recipe_of": "mine@1",
        "seen_until": FIRST,
        "new_sessions": int((bars(SECOND).sessions > FIRST).sum()),
    }
    assert new["splits"]["calibration"]["last"] == SECOND
    assert champion_of(models) == 1


def test_a_retraining_with_features_on_disk_gives_the_bytes_of_a_training_of_the_same_recipe(
    models: Path, tmp_path: Path
) -> None:
    cache = FeatureCache(folder=tmp_path / "features", tell=pytest.fail)
    plan = plan_retraining(models, "mine", bars(SECOND), cache=cache)
    made = retrain(plan, models / "mine" / "5").folder
    other = models / "mine" / "2"
    assert (made / "weights.safetensors").read_bytes() == (other / "weights.safetensors").read_bytes()
    assert card_of(made) == card_of(other) | plan.card()
    assert len(list(cache.folder.glob("*/observed.npy"))) == 1


def test_splits_by_shares_keep_their_lengths_and_move_to_the_end(models: Path) -> None:
    save_version(models / "mine", 5, FIRST, replace(HAR, parts=None))
    splits = {split.name: split for split in Card.from_json(json.dumps(card_of(models / "mine" / "5"))).splits}
    plan = plan_retraining(models, "mine@5", bars())
    moved = plan.trainings[""].recipe.splits(bars().sessions)
    assert moved.test is None
    for part in (moved.selection, moved.calibration):
        old, sessions = splits[part.name], bars().sessions
        assert ((sessions >= part.first) & (sessions <= part.last)).sum() == (
            (sessions >= old.first) & (sessions <= old.last)
        ).sum()
    assert moved.calibration.last == bars().sessions[-1]


def test_bars_with_nothing_new_are_refused(models: Path) -> None:
    with pytest.raises(ConfigurationError, match="the bars end on 2009-12-31, and mine@1 has seen labels"):
        plan_retraining(models, "mine", bars(FIRST))


def test_bars_that_lack_a_symbol_of_the_champion_are_refused(models: Path) -> None:
    with pytest.raises(ConfigurationError, match="the bars lack IBM, which mine@1 learnt from"):
        plan_retraining(models, "mine", bars(SECOND).select(["AAPL"]))


def test_a_fine_tuned_champion_is_refused(models: Path) -> None:
    material = TrainingMaterial(
        bars(SECOND), load_default_features(), parent=ParentArtifact.load(models / "mine" / "3")
    )
    parts = DataSplits.by_dates([(20070103, 20091231), (20100104, 20100630), (20100701, SECOND)])
    train(material, replace(LSTM, parts=parts), models / "mine" / "5", consume=iter)
    with pytest.raises(ConfigurationError, match="mine@5 is fine-tuned from weights that it does not contain"):
        plan_retraining(models, "mine@5", bars())


def test_an_ensemble_of_members_without_a_test_split_is_refused(models: Path) -> None:
    folders = {"a": models / "mine" / "1", "b": models / "mine" / "3"}
    with pytest.raises(ConfigurationError, match="has seen every session up to 2009-12-31"):
        join(bars(SECOND), folders, models / "mine" / "5")


def test_a_training_that_fails_leaves_the_alias_and_says_why(
    models: Path, files: dict[str, Path], capsys: Capture
) -> None:
    (models / "mine" / "5.run").write_text("in the way")
    assert program_exit_code(app, "retrain", "mine@3", "--models", models, "--bars", files["second"]) == 1
    assert "5.run" in capsys.readouterr().err
    assert champion_of(models) == 1
    assert not (models / "mine" / "5").exists()


@pytest.mark.slow
def test_a_retraining_that_was_stopped_is_resumed_to_the_same_bytes(models: Path, files: dict[str, Path]) -> None:
    save_version(models / "slow", 1, FIRST, replace(LSTM, optimisation=Optimisation(max_epochs=4, device="cpu")))
    words = ("retrain", "slow", "--models", models, "--bars", files["second"], "--json")
    with interrupted_at(6, "trainers.stock.command"):
        assert program_exit_code(app, *words) == 128 + signal.SIGINT
    assert not (models / "slow" / "2").exists()
    assert read_aliases(models / "slow") == {"champion": 1}
    assert program_exit_code(app, *words, "--resume") == 0
    plan = plan_retraining(models, "slow", bars(SECOND))
    whole = retrain(plan, models / "slow" / "3")
    assert (models / "slow" / "2" / "weights.safetensors").read_bytes() == (
        whole.folder / "weights.safetensors"
    ).read_bytes()


# --- retraining of ensembles

SCORED = DataSplits.by_dates([(20070103, 20090330), (20090401, 20090630), (20090701, 20091130), (20091201, FIRST)])
"""The splits of the members' first training."""


@pytest.fixture(scope="module")
def saved_ensembles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`both`: 1, of `har` and `lstm` with equal weights."""
    models = tmp_path_factory.mktemp("ensembles")
    members = {"har": replace(HAR, parts=SCORED), "lstm": replace(LSTM, parts=SCORED)}
    for name, recipe in members.items():
        save_version(models / name, 1, FIRST, recipe)
    join_version(models, 1, "har", "lstm", rule="equal")
    return models


def join_version(models: Path, version: int, *members: str, rule: WeightRule) -> None:
    folders = {name: models / name / "1" for name in members}
    join(bars(FIRST), folders, models / "both" / str(version), rule=rule)


@pytest.fixture
def ensembles(saved_ensembles: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved_ensembles, tmp_path / "ensembles"))


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_member_of_an_ensemble_is_trained_again_and_combined_by_the_same_rule(
    ensembles: Path, files: dict[str, Path], capsys: Capture
) -> None:
    features = ensembles.parent / "features"
    words = ("--models", ensembles, "--bars", files["second"], "--feature-cache", features, "--json")
    assert program_exit_code(app, "retrain", "both", *words) == 0
    assert len(list(features.glob("*/observed.npy"))) == 1  # both members read it
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["members"] == ["har", "lstm"]
    made = artifact.load_ensemble(ensembles / "both" / "2")
    assert made.manifest.card["retraining"] == {
        "recipe_of": "both@1",
        "seen_until": 20091130,
        "new_sessions": int((bars(SECOND).sessions > 20091130).sum()),
    }
    assert "weighting" not in made.manifest.card
    assert read_aliases(ensembles / "both") == {"champion": 1}
    calibration = len(bars(FIRST).between(SCORED.calibration.first, SCORED.calibration.last).sessions)
    selection = len(bars(FIRST).between(SCORED.selection.first, SCORED.selection.last).sessions)
    parts = RollingSplits(selection=selection, calibration=calibration)
    for name, recipe in {"har": HAR, "lstm": LSTM}.items():
        save_version(ensembles / name, 2, SECOND, replace(recipe, parts=parts))
        weights = [folder / "weights.safetensors" for folder in (ensembles / name / "2", made_member(ensembles, name))]
        assert weights[0].read_bytes() == weights[1].read_bytes()


def made_member(models: Path, name: str) -> Path:
    return models / "both" / "2" / "members" / name


def test_a_retrained_ensemble_is_calibrated_on_the_newest_days_and_has_no_score(ensembles: Path) -> None:
    retrain(plan_retraining(ensembles, "both", bars(SECOND)), ensembles / "both" / "2")
    card = Card.from_json(json.dumps(dict(artifact.load_ensemble(ensembles / "both" / "2").manifest.card)))
    assert [(split.name, split.last) for split in card.splits][-1] == ("calibration", SECOND)
    assert (card.scores, card.skill, card.best_member) == (None, None, None)
    assert card.notes[-1].startswith("no score: every session was used")


def test_a_screened_ensemble_is_screened_again(ensembles: Path) -> None:
    join_version(ensembles, 2, "har", "lstm", rule="screened")
    plan = plan_retraining(ensembles, "both@2", bars(SECOND))
    assert plan.rule == "screened"
    made = retrain(plan, ensembles / "both" / "3")
    assert made.summary.weighting is not None
    assert made.summary.weighting.last > FIRST


def train_in_vain(planned: PlannedTraining, place: Path, limit: ReportConsumer) -> TrainingResult:
    """Train with steps so long that a network keeps its start."""
    recipe = replace(planned.recipe, optimisation=replace(planned.recipe.optimisation, learning_rate=0.99))
    return train(planned.material, recipe, place, consume=limit, sections=planned.sections)


@pytest.mark.parametrize(
    ("rule", "members", "kept"),
    [
        ("screened", ("har", "lstm"), ("har",)),
        ("screened", ("lstm",), ("lstm",)),
        ("equal", ("har", "lstm"), ("har", "lstm")),
    ],
)
def test_a_screened_network_that_learns_nothing_anew_is_left_out_unless_it_is_the_only_member(
    ensembles: Path, rule: WeightRule, members: tuple[str, ...], kept: tuple[str, ...]
) -> None:
    join_version(ensembles, 2, *members, rule=rule)
    told: list[str] = []
    plan = plan_retraining(ensembles, "both@2", bars(SECOND))
    made = retrain(plan, ensembles / "both" / "3", TrainingRunner(train=train_in_vain), warn=told.append)
    assert isinstance(made, JoinedEnsemble)
    assert made.members == kept
    assert [line for line in told if "left out" in line] == [
        f"{name} is left out: the network added nothing to HAR on these data: this model forecasts as `har` does"
        for name in members
        if name not in kept
    ]


def test_a_retraining_of_an_ensemble_is_a_refresh_and_another_rule_is_not(ensembles: Path) -> None:
    join_version(ensembles, 2, "har", "lstm", rule="screened")
    retrain(plan_retraining(ensembles, "both", bars(SECOND)), ensembles / "both" / "3")
    first, screened, retrained = (load_version(ensembles, f"both@{version}") for version in (1, 2, 3))
    assert retrained.has_recipe_of(first)
    assert not retrained.has_recipe_of(screened)
    assert not load_version(ensembles, "har").has_recipe_of(first)


def test_a_retraining_that_dropped_a_member_is_a_refresh_and_one_with_a_new_member_is_not(ensembles: Path) -> None:
    join_version(ensembles, 2, "har", rule="equal")
    both, one = (load_version(ensembles, f"both@{version}") for version in (1, 2))
    assert one.has_recipe_of(both)
    assert not both.has_recipe_of(one)


def test_a_fine_tuned_member_is_named_and_nothing_is_trained(ensembles: Path, files: dict[str, Path]) -> None:
    parent = ParentArtifact.load(ensembles / "lstm" / "1")
    parts = DataSplits.by_dates([(20070103, 20091231), (20100104, 20100330), (20100401, 20100930), (20101001, SECOND)])
    material = TrainingMaterial(bars(SECOND), load_default_features(), parent=parent)
    train(material, replace(LSTM, parts=parts), ensembles / "tuned" / "1", consume=iter)
    save_version(ensembles / "har", 2, SECOND, replace(HAR, parts=parts))
    folders = {"har": ensembles / "har" / "2", "tuned": ensembles / "tuned" / "1"}
    join(bars(SECOND), folders, ensembles / "mixed" / "1", rule="equal")
    with pytest.raises(ConfigurationError, match="member tuned of mixed@1 is fine-tuned from weights"):
        plan_retraining(ensembles, "mixed", bars())
    assert program_exit_code(app, "retrain", "mixed", "--models", ensembles, "--bars", files["later"]) == 1
    assert sorted(path.name for path in (ensembles / "mixed").iterdir() if path.is_dir()) == ["1"]


@pytest.mark.slow
def test_a_retraining_of_an_ensemble_that_was_stopped_leaves_no_version_and_is_resumed_by_processes_to_the_same_bytes(
    ensembles: Path, files: dict[str, Path], capsys: Capture
) -> None:
    slow = replace(LSTM, parts=SCORED, optimisation=Optimisation(max_epochs=4, device="cpu"))
    save_version(ensembles / "slow", 1, FIRST, slow)
    folders = {name: ensembles / name / "1" for name in ("har", "slow")}
    join(bars(FIRST), folders, ensembles / "both" / "2", rule="equal")
    words = ("retrain", "both@2", "--models", ensembles, "--bars", files["second"], "--json")
    command = [sys.executable, "-m", "quantra", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if '"epoch": 2' in line)
        process.kill()
    assert not (ensembles / "both" / "3").exists()
    assert read_aliases(ensembles / "both") == {"champion": 1}
    assert program_exit_code(app, *words) == 1
    assert "holds members of a training run that was stopped; continue it (--resume)" in capsys.readouterr().out
    assert program_exit_code(app, *words, "--resume", "--workers", 2) == 0
    assert '"stage": "the training of slow is done"' in capsys.readouterr().out
    retrain(plan_retraining(ensembles, "both@2", bars(SECOND)), ensembles / "both" / "4")
    assert files_of(ensembles / "both" / "3") == files_of(ensembles / "both" / "4")


def test_a_member_that_cannot_be_trained_is_named(ensembles: Path) -> None:
    plan = plan_retraining(ensembles, "both", bars(SECOND))
    wrong = replace(plan.trainings["har"], recipe=replace(HAR, encoder_length=2000))
    plan = replace(plan, trainings={**plan.trainings, "har": wrong})
    with pytest.raises(ConfigurationError, match=r"^member har: .* sessions"):
        retrain(plan, ensembles / "both" / "2")


def test_processes_for_the_retraining_of_one_model_are_refused(
    models: Path, files: dict[str, Path], capsys: Capture
) -> None:
    words = ("retrain", "mine", "--models", models, "--bars", files["second"], "--workers", 2)
    assert program_exit_code(app, *words) == 2
    assert "mine@1 is one model" in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_finished_member_of_other_bars_is_not_taken_up(
    ensembles: Path, files: dict[str, Path], capsys: Capture
) -> None:
    plan = plan_retraining(ensembles, "both", bars(20101130))
    planned = plan.trainings["har"]
    place = ensembles / "both" / "2.run" / "members" / "har"
    train(planned.material, planned.recipe, place, consume=iter)
    words = ("retrain", "both", "--models", ensembles, "--bars", files["second"], "--resume")
    assert program_exit_code(app, *words) == 1
    assert "was trained on other bars" in " ".join(capsys.readouterr().err.split())


def test_an_artifact_to_start_from_that_has_seen_the_days_names_the_retraining(
    models: Path, files: dict[str, Path], capsys: Capture
) -> None:
    words = ("--from", models / "mine" / "3", "--bars", files["second"], "--out", models / "mine" / "5")
    assert program_exit_code(app, "train", "stock", *words, "--json") == 2
    assert "quantra retrain NAME --bars BARS" in json.loads(capsys.readouterr().out)["error"]["message"]


# --- comparisons


def test_versions_are_compared_after_all_days_that_either_has_seen(models: Path) -> None:
    found = compare_versions(*pair_of(models, "mine@champion", "mine@2"), bars())
    assert (found.champion, found.challenger, found.is_refresh) == ("mine@1", "mine@2", True)
    assert found.seen_until == SECOND
    assert found.first_day == 20110103
    assert found.days == (bars().sessions > SECOND).sum() - 3
    assert found.symbols == ("AAPL", "IBM")


def test_a_comparison_that_is_not_wanted_any_more_ends_before_its_next_step(models: Path) -> None:
    context = CallContext()
    steps = 0

    def check() -> None:
        nonlocal steps
        steps += 1
        if steps == 4:  # before the forecasts of the second version
            context.cancel()
        context.check()

    with pytest.raises(CallCancelledError):
        compare_versions(*pair_of(models, "mine@champion", "mine@2"), bars(), check=check)
    assert steps == 4


def test_a_comparison_the_other_way_round_has_the_opposite_sign(
    saved_models: Path, compared: VersionComparison
) -> None:
    back = compare_versions(*pair_of(saved_models, "mine@2", "mine@1"), bars())
    assert (1 - compared.losses.improvement.value) * (1 - back.losses.improvement.value) == pytest.approx(1)
    assert compared.coverage == back.coverage[::-1]


def test_a_version_with_bands_far_too_wide_is_decided_against(models: Path) -> None:
    made = load(models / "mine" / "2").artifact
    offsets = ((-3.0, 0.0, 3.0),) * len(HAR.target.horizons)
    conformal = replace(made.manifest.conformal, offsets=offsets)
    wide = replace(made, manifest=replace(made.manifest, conformal=conformal))
    save_artifact(models / "mine" / "5", wide)
    found = compare_versions(*pair_of(models, "mine@1", "mine@5"), bars())
    assert found.losses.improvement.upper < -0.3
    assert found.bounds.upper is not None
    assert found.bounds.upper < -0.3
    assert found.coverage[1] > found.coverage[0]
    assert found.decision is False


def test_days_that_one_version_has_seen_are_refused_naming_it(models: Path) -> None:
    with pytest.raises(InSampleError, match=r"mine@1 and mine@2 cannot .* because mine@2 has seen labels up to"):
        compare_versions(*pair_of(models), bars(SECOND))


def test_versions_of_another_target_are_refused(models: Path) -> None:
    save_version(models / "mine", 5, FIRST, replace(HAR, target=Target(horizons=(1, 2))))
    with pytest.raises(ConfigurationError, match=r"different things: horizons \[1, 2\] and \[1, 3\]"):
        compare_versions(*pair_of(models, "mine@1", "mine@5"), bars())


def test_a_version_is_not_compared_with_itself(models: Path) -> None:
    with pytest.raises(ConfigurationError, match="mine@1 is compared with itself"):
        compare_versions(*pair_of(models, "mine", "mine@1"), bars())


def test_bounds_need_the_days_of_the_longest_horizon(models: Path) -> None:
    far = replace(HAR, target=Target(horizons=(1, 20)))
    for version, until in ((5, 20091130), (6, FIRST)):
        save_version(models / "mine", version, until, far)
    found = compare_versions(*pair_of(models, "mine@5", "mine@6"), bars(20101029))
    assert (found.bounds.lower, found.bounds.days_short) == (None, 200 - found.days)


def test_challengers_of_a_champion_have_different_shares_of_the_error_probability(saved_models: Path) -> None:
    compared = [compare_versions(*pair_of(saved_models, "mine@3", f"mine@{number}"), bars()) for number in (4, 2, 1)]
    assert [one.bounds.alpha for one in compared] == [compute_challenger_alpha(attempt) for attempt in (1, 2, 4)]
    second = compare_versions(*pair_of(saved_models, "mine@1", "mine@3"), bars())
    assert second.bounds.alpha == compute_challenger_alpha(3)


def test_another_network_is_a_new_recipe_and_other_splits_are_not(models: Path) -> None:
    save_version(models / "mine", 5, FIRST, replace(HAR, parts=RollingSplits(selection=50, calibration=100)))
    first, network, splits = (load_version(models, f"mine@{version}") for version in (1, 3, 5))
    assert not network.has_recipe_of(first)
    assert splits.has_recipe_of(first)


def test_recipes_are_compared_in_a_walk_forward_that_trains_each_before_its_days(models: Path) -> None:
    recipes = pair_of(models, "mine@1", "mine@3")
    found = compare_recipes(*recipes, bars(), start=20110103, refit=200)
    assert (found.first_day, found.seen_until, found.is_refresh) == (20110103, 0, False)
    assert found.by == "recipes, trained every 200 sessions"


def test_a_walk_forward_learns_from_no_bar_of_its_days(models: Path) -> None:
    source = load_version(models, "mine@1").source
    walked = RefitMaterial(bars=bars(), features=source.features, recipe=source.known_recipe())
    (fold,) = split_sessions(bars().sessions, WalkForwardPlan(start=20110103, end=20110331))
    known, more = (walk_forward(replace(walked, bars=bars(until)), (fold,)) for until in (20110408, 20120629))
    known, more = known.shared_with(more)
    assert known.test.days == 62
    np.testing.assert_allclose(known.values, more.values, rtol=1e-9)


def test_a_walk_forward_gives_the_calibrated_forecasts_of_a_model_trained_before_its_days(models: Path) -> None:
    source = load_version(models, "mine@1").source
    (fold,) = split_sessions(bars().sessions, WalkForwardPlan(start=20110103, end=20110331))
    material = RefitMaterial(bars=bars(), features=source.features, recipe=source.known_recipe())
    walked = walk_forward(material, (fold,))
    known = TrainingMaterial(bars().between(fold.learn_first, fold.learn_last), load_default_features())
    train(known, HAR, models / "mine" / "5", consume=iter)
    bound = bind_model(load_version(models, "mine@5").trained_model.model, bars())
    windows = bound.windows(SplitPart("test", 20110104, 20110405))
    values = bound.forecasts(windows).calibrated
    np.testing.assert_allclose(walked.values[: len(bars().symbols)], values[: len(bars().symbols)], rtol=1e-5)


def test_a_walk_forward_of_one_recipe_is_refused(models: Path) -> None:
    with pytest.raises(ConfigurationError, match="have the same recipe, so a walk forward cannot tell them apart"):
        compare_recipes(*pair_of(models), bars(), start=20110103, refit=200)


def test_a_copy_of_the_champion_is_not_decided_for(models: Path) -> None:
    shutil.copytree(models / "mine" / "1", models / "mine" / "5")
    found = compare_versions(*pair_of(models, "mine@1", "mine@5"), bars())
    assert found.decision is False
    assert "the same values as mine@1 on all 626 days, so it is a copy" in found.sentence


def test_only_another_recipe_is_pointed_to_a_walk_forward(models: Path) -> None:
    with pytest.raises(InSampleError, match=r"give later bars$"):
        compare_versions(*pair_of(models), bars(SECOND))
    with pytest.raises(InSampleError, match=r"walk forward \(--start DATE --refit 63\)$"):
        compare_versions(*pair_of(models, "mine@1", "mine@3"), bars(FIRST))


def test_a_comparison_warns_of_a_bar_that_contradicts_its_symbol(
    models: Path, files: dict[str, Path], capsys: Capture
) -> None:
    wrong = {name: getattr(bars(), name).copy() for name in bars().columns if name != "volume"}
    for values in wrong.values():
        values[0, -1] *= 100
    replace(bars(), **wrong).write_csv(files["later"])
    words = ("compare", "mine@1", "mine@2", "--models", models, "--bars", files["later"])
    assert program_exit_code(app, *words) == 0
    assert "AAPL 2012-06-29: close is" in " ".join(capsys.readouterr().err.split())


def test_a_missing_champion_is_told_with_the_command_that_replaces_it(models: Path, capsys: Capture) -> None:
    shutil.rmtree(models / "mine" / "1")
    assert program_exit_code(app, "promote", "mine@2", "--models", models, "--reason", "lost") == 1
    assert "put version 1 back, or run `quantra alias mine champion 4`" in capsys.readouterr().err


def test_the_command_shows_the_days_and_the_decision(models: Path, files: dict[str, Path], capsys: Capture) -> None:
    words = ("compare", "mine@champion", "mine@2", "--models", models, "--bars", files["later"])
    assert program_exit_code(app, *words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "days up to 2010-12-31 are left out: mine@2 has seen their labels" in shown
    assert re.search(r"outcomes in the band: mine@1 [\d.]+ %, mine@2 [\d.]+ %; promised 80 %", shown)
    assert "a refresh of the same recipe: not worse by more than 1 %? mean loss " in shown
    assert "mine@2 against mine@1, versions: 374 days of 2 symbols, 2011-01-03 to 2012-06-26" in shown
    assert program_exit_code(app, *words, "--json") == 0
    assert json.loads(capsys.readouterr().out)["seen_until"] == SECOND


@pytest.mark.parametrize(
    ("bounds", "refresh", "decision"),
    [
        ((-0.009, 0.02), True, True),
        ((-0.011, 0.02), True, None),
        ((-0.05, -0.011), True, False),
        ((0.001, 0.02), False, True),
        ((-0.009, 0.02), False, None),
        ((-0.02, -0.001), False, False),
        ((None, None), True, None),
    ],
)
def test_a_refresh_must_not_be_worse_and_a_new_recipe_must_be_better(
    compared: VersionComparison, bounds: tuple[float | None, float | None], *, refresh: bool, decision: bool | None
) -> None:
    assert with_bounds(compared, *bounds, refresh=refresh).decision is decision


def test_a_comparison_on_less_than_half_of_the_champion_s_symbols_is_undecided(
    models: Path, compared: VersionComparison
) -> None:
    better = with_bounds(compared, 0.01, 0.02)
    assert (better.champion_symbols, better.shared, better.decision) == (2, 2, True)
    assert replace(better, champion_symbols=5, shared=3).decision is True
    few = replace(better, champion_symbols=5, shared=2)
    assert few.decision is None
    assert few.sentence.endswith(
        "undecided: only 2 of the 5 symbols that mine@1 learnt from were compared; give bars of at least half of them"
    )
    gates = check_gates(*pair_of(models), comparison=few, ledger=None)
    assert "losses" in list_failed(gates)


def test_the_compared_symbols_are_counted(models: Path) -> None:
    found = compare_versions(*pair_of(models), bars().select("IBM"))
    assert (found.champion_symbols, found.shared) == (2, 1)


@pytest.mark.parametrize("decision", [True, None, False])
def test_promote_is_the_next_command_only_for_a_better_version(
    models: Path,
    files: dict[str, Path],
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    *,
    decision: bool | None,
) -> None:
    monkeypatch.setattr(VersionComparison, "decision", property(lambda _: decision))
    words = ("compare", "mine@champion", "mine@2", "--models", models, "--bars", files["later"])
    assert program_exit_code(app, *words) == 0
    assert ("quantra promote" in capsys.readouterr().out) is (decision is True)


@pytest.fixture(scope="module")
def compared(saved_models: Path) -> VersionComparison:
    """Versions 1 and 2 on all bars."""
    return compare_versions(*pair_of(saved_models), bars())


def with_bounds(
    found: VersionComparison, lower: float | None, upper: float | None, *, refresh: bool = True
) -> VersionComparison:
    """The comparison with other bounds."""
    limits = SequenceBounds(alpha=0.05, lower=lower, upper=upper, days_short=0 if lower is not None else 10)
    return replace(found, bounds=limits, is_refresh=refresh)


def test_the_bounds_are_said_to_be_averaged_by_day(compared: VersionComparison) -> None:
    """The mean of all forecasts may be outside, if the number of symbols changes."""
    sentence = with_bounds(compared, 0.0083, 0.0184).sentence
    assert "; averaged by day, +0.83 to +1.84 % smaller, no matter how often you look: decided for it" in sentence


# --- gates


def shadow_forecasts(
    version: ComparedVersion, sessions: int, *, role: ForecastRole = ForecastRole.CHALLENGER
) -> list[ForecastRecord]:
    panel = bars().last(sessions + 1)
    return [
        replace(
            forecast_record(panel, day, horizons=(1,)),
            forecast_id=f"{version.reference} {day}",
            role=role,
            version=version.version,
            weights_hash=version.trained_model.model.identity.weights_hash,
        )
        for day in range(sessions)
    ]


def replay_event(version: int, *, equal: int, different: int, failed: int = 0, **weights: str) -> LedgerEvent:
    counts = {"equal": equal, "different": different, "failed": failed}
    return LedgerEvent(kind="replay", model="mine", version=version, detail={**counts, **weights})


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    Ledger.open(tmp_path / "ledger.db", create=True).close()
    return tmp_path / "ledger.db"


def failed_gates(models: Path, path: Path | None, comparison: VersionComparison | None, version: int = 2) -> list[str]:
    champion, challenger = pair_of(models, "mine@1", f"mine@{version}")
    if path is None:
        return list_failed(check_gates(champion, challenger, comparison=comparison, ledger=None))
    with Ledger.open(path) as book:
        return list_failed(check_gates(champion, challenger, comparison=comparison, ledger=book))


def record_shadow(
    path: Path, models: Path, *, sessions: int = 20, different: int = 0, role: ForecastRole = ForecastRole.CHALLENGER
) -> None:
    version = load_version(models, "mine@2")
    with Ledger.open(path) as book:
        for forecast in shadow_forecasts(version, sessions, role=role):
            book.add_bars(bars().last(sessions + 3).until(forecast.as_of))
            book.append([replace(forecast, bars_batch=book.receipt.batch)])
        book.append([replay_event(2, equal=100, different=different)])


@pytest.fixture(scope="module")
def saved_shadow(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shadow") / "ledger.db"
    Ledger.open(path, create=True).close()
    record_shadow(path, saved_models)
    return path


@pytest.fixture
def shadow(saved_shadow: Path, tmp_path: Path) -> Path:
    """A ledger with all the evidence that version 2 needs."""
    return Path(shutil.copy(saved_shadow, tmp_path / "ledger.db"))


def test_a_version_with_all_its_evidence_passes_every_gate(
    models: Path, shadow: Path, compared: VersionComparison
) -> None:
    assert failed_gates(models, shadow, with_bounds(compared, -0.005, 0.01)) == []


def test_without_a_ledger_or_bars_the_gates_that_need_them_fail(models: Path) -> None:
    assert failed_gates(models, None, None) == ["losses", "shadow", "replay"]


def test_an_undecided_comparison_fails(models: Path, shadow: Path, compared: VersionComparison) -> None:
    assert failed_gates(models, shadow, with_bounds(compared, -0.05, 0.05)) == ["losses"]


def test_nineteen_sessions_in_the_shadow_are_too_few(models: Path, ledger: Path, compared: VersionComparison) -> None:
    record_shadow(ledger, models, sessions=19)
    assert failed_gates(models, ledger, with_bounds(compared, 0.0, 0.01)) == ["shadow"]


def test_what_clients_asked_is_no_shadow(models: Path, ledger: Path, compared: VersionComparison) -> None:
    record_shadow(ledger, models, role=ForecastRole.CLIENT)
    assert failed_gates(models, ledger, with_bounds(compared, 0.0, 0.01)) == ["shadow"]


def test_forecasts_of_other_weights_are_no_shadow(models: Path, shadow: Path, compared: VersionComparison) -> None:
    shutil.rmtree(models / "mine" / "2")
    save_version(models / "mine", 2, 20101130)
    assert failed_gates(models, shadow, with_bounds(compared, 0.0, 0.01)) == ["shadow"]


def test_forecasts_after_the_fact_are_no_shadow(models: Path, ledger: Path, compared: VersionComparison) -> None:
    with Ledger.open(ledger) as book:
        book.add_bars(bars())
    record_shadow(ledger, models)
    assert failed_gates(models, ledger, with_bounds(compared, 0.0, 0.01)) == ["shadow"]


def test_forecasts_from_bars_that_the_ledger_lacks_are_no_shadow(
    models: Path, ledger: Path, compared: VersionComparison
) -> None:
    with Ledger.open(ledger) as book:
        book.append(shadow_forecasts(load_version(models, "mine@2"), 20))
        book.append([replay_event(2, equal=100, different=0)])
    assert failed_gates(models, ledger, with_bounds(compared, 0.0, 0.01)) == ["shadow"]


def test_a_replay_that_differed_fails(models: Path, ledger: Path, compared: VersionComparison) -> None:
    record_shadow(ledger, models, different=1)
    assert failed_gates(models, ledger, with_bounds(compared, 0.0, 0.01)) == ["replay"]


@pytest.mark.parametrize("last", [(0, 0, 0), (100, 1, 0), (100, 0, 1)])
def test_the_last_replay_counts_and_must_have_replayed_something(
    models: Path, shadow: Path, compared: VersionComparison, last: tuple[int, int, int]
) -> None:
    with Ledger.open(shadow) as book:
        book.append([replay_event(2, equal=last[0], different=last[1], failed=last[2])])
    assert failed_gates(models, shadow, with_bounds(compared, 0.0, 0.01)) == ["replay"]


def test_a_replay_of_other_weights_does_not_count(models: Path, ledger: Path, compared: VersionComparison) -> None:
    record_shadow(ledger, models, different=1)
    with Ledger.open(ledger) as book:
        book.append([replay_event(2, equal=100, different=0, weights_hash="ab" * 32)])
    assert failed_gates(models, ledger, with_bounds(compared, 0.0, 0.01)) == ["replay"]


def test_a_leak_that_an_audit_found_fails(models: Path, shadow: Path, compared: VersionComparison) -> None:
    sound = audit_record(digest=hashlib.sha256((models / "mine" / "2" / "manifest.json").read_bytes()).hexdigest())
    record = replace(sound, future=replace(sound.future, verdict=AuditVerdict.FAIL))
    write_audit(models / "mine" / "2", record)
    assert failed_gates(models, shadow, with_bounds(compared, 0.0, 0.01)) == ["audit"]


def test_an_audit_that_cannot_be_read_fails(models: Path, shadow: Path, compared: VersionComparison) -> None:
    locate_audit(models / "mine" / "2").write_bytes(b"{")
    assert failed_gates(models, shadow, with_bounds(compared, 0.0, 0.01)) == ["audit"]


def test_a_version_of_fewer_symbols_fails(models: Path) -> None:
    assert "symbols" in failed_gates(models, None, None, version=4)


def test_a_gate_that_does_not_exist_cannot_be_overridden(models: Path) -> None:
    champion, challenger = pair_of(models)
    with pytest.raises(ConfigurationError, match="unknown gate luck; choose from losses, symbols, audit"):
        check_gates(champion, challenger, comparison=None, ledger=None, overridden=("luck",))


# --- promotions and rollbacks


def test_a_promotion_that_fails_a_gate_ends_with_3_and_moves_no_alias(models: Path, capsys: Capture) -> None:
    words = ("promote", "mine@2", "--models", models, "--reason", "newer bars", "--override", "losses")
    assert program_exit_code(app, *words) == 3
    assert "add --override shadow --override replay." in " ".join(capsys.readouterr().out.split())
    assert champion_of(models) == 1


def test_a_promotion_is_recorded_with_its_evidence_in_the_history_and_the_ledger(
    models: Path, files: dict[str, Path], ledger: Path, capsys: Capture
) -> None:
    record_shadow(ledger, models, sessions=19)
    words = ("promote", "mine@2", "--models", models, "--bars", files["later"], "--ledger", ledger)
    assert program_exit_code(app, *words, "--reason", "newer bars", "--override", "shadow", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["promoted"] is True
    assert champion_of(models) == 2
    move = read_moves(models / "mine", {"champion": 2})[-1]
    assert (move.previous, move.version, move.reason) == (1, 2, "newer bars")
    assert [gate.name for gate in move.gates if gate.overridden] == ["shadow"]
    with Ledger.open(ledger) as book:
        events = book.records(LedgerEvent, "kind = 'champion'")
    told_of = [(event.version, event.reason) for event in events]
    assert told_of == [(1, "first: the first version"), (2, "promote: newer bars")]
    assert events[-1].detail["gates"] == told["gates"]


def test_a_promotion_that_was_killed_before_the_ledger_is_completed_by_repeating_it(
    models: Path, ledger: Path, capsys: Capture
) -> None:
    champion, challenger = pair_of(models)
    gates = check_gates(champion, challenger, comparison=None, ledger=None, overridden=EVIDENCE)
    promote(challenger, champion, gates, reason="newer bars")
    words = ("promote", "mine@2", "--models", models, "--reason", "again", "--ledger", ledger)
    assert program_exit_code(app, *words) == 0
    assert program_exit_code(app, *words) == 0
    assert "mine@2 is the champion of mine already." in capsys.readouterr().out
    with Ledger.open(ledger) as book:
        assert [event.version for event in book.records(LedgerEvent)] == [1, 2]


def test_moves_of_the_same_second_are_all_recorded_in_the_ledger(models: Path, ledger: Path) -> None:
    first, second = pair_of(models)
    with Ledger.open(ledger) as book:
        for _ in range(2):
            promote(second, first, (), reason="there", ledger=book)
            promote(first, second, (), reason="back", ledger=book)
        moves = book.records(LedgerEvent)
    assert [move.version for move in moves] == [1, 2, 1, 2, 1]


def test_a_version_is_not_promoted_past_a_gate_from_python(models: Path) -> None:
    champion, challenger = pair_of(models)
    gates = check_gates(champion, challenger, comparison=None, ledger=None)
    with pytest.raises(ConfigurationError, match="mine@2 has not passed the gate losses, shadow, replay"):
        promote(challenger, champion, gates, reason="newer bars")
    assert champion_of(models) == 1


def test_a_promotion_from_a_comparison_with_a_former_champion_is_refused(models: Path) -> None:
    first, second, third = (load_version(models, f"mine@{version}") for version in (1, 2, 3))
    gates = check_gates(first, second, comparison=None, ledger=None, overridden=EVIDENCE)
    promote(third, first, gates, reason="faster")
    with pytest.raises(ConfigurationError, match="compared with version 1, but the champion is now 3; compare again"):
        promote(second, first, gates, reason="slower")


def test_a_refresh_is_not_promoted_by_a_walk_forward_of_its_recipe(
    models: Path, files: dict[str, Path], capsys: Capture
) -> None:
    words = ("promote", "mine@2", "--models", models, "--bars", files["later"], "--reason", "newer bars")
    assert program_exit_code(app, *words, "--start", "2011-01-03", "--refit", 200) == 1
    assert "have the same recipe" in " ".join(capsys.readouterr().err.split())


def test_a_rollback_makes_the_champion_before_the_champion_again(models: Path, ledger: Path, capsys: Capture) -> None:
    champion, challenger = pair_of(models)
    gates = check_gates(champion, challenger, comparison=None, ledger=None, overridden=EVIDENCE)
    promote(challenger, champion, gates, reason="newer bars")
    words = ("rollback", "mine", "--models", models, "--ledger", ledger, "--reason", "worse", "--json")
    assert program_exit_code(app, *words) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["version"], told["previous"], told["kind"]) == (1, 2, "rollback")
    assert champion_of(models) == 1
    with Ledger.open(ledger) as book:
        assert book.records(LedgerEvent)[-1].reason == "rollback: worse"


def test_a_rollback_to_an_artifact_that_was_removed_is_refused(models: Path, capsys: Capture) -> None:
    champion, challenger = pair_of(models)
    gates = check_gates(champion, challenger, comparison=None, ledger=None, overridden=EVIDENCE)
    promote(challenger, champion, gates, reason="newer bars")
    shutil.rmtree(models / "mine" / "1")
    assert program_exit_code(app, "rollback", "mine", "--models", models, "--reason", "worse") == 1
    assert "has no version 1" in capsys.readouterr().err
    assert champion_of(models) == 2


@pytest.mark.parametrize(
    ("version", "reason", "problem"), [("mine", "why", "names no version"), ("mine@2", " ", "--reason is empty")]
)
def test_a_promotion_needs_a_version_and_a_reason(
    models: Path, version: str, reason: str, problem: str, capsys: Capture
) -> None:
    assert program_exit_code(app, "promote", version, "--models", models, "--reason", reason) == 2
    assert problem in capsys.readouterr().err
    assert artifact.is_artifact(models / "mine" / "1")
