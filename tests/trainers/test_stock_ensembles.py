"""Building ensembles: recalibrated on days common to all members, evaluated on unseen days."""

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import typer
from artifacts import UNIVERSE, save_artifact, small_model
from command_exits import exit_code
from ensembles import artifact_of, save_ensemble
from market import bokeh_panel
from numpy.typing import NDArray

from predictor import artifact
from predictor.artifact import Artifact, StoredEnsemble
from predictor.bars import BarPanel
from predictor.canonical import Record
from predictor.card import Card
from predictor.cli import run
from predictor.errors import ArtifactError, ConfigurationError
from predictor.forecaster import Forecaster
from predictor.networks import Target
from predictor.registry import read_aliases
from trainers.stock.data import NO_COVARIATE_FILES, TrainingWindows
from trainers.stock.ensembles import JoinedEnsemble, join
from trainers.stock.ensembles.command import ensemble, name_members
from trainers.stock.ensembles.ensemble import find_common_splits
from trainers.stock.evaluation.baselines import SCALED, BaselineModel, BaselinePlan, FittedBaseline
from trainers.stock.evaluation.baselines.baseline import BaselineSample
from trainers.stock.evaluation.bound_model import EnsembleMembers
from trainers.stock.splits import DataSplits, SplitPart, SplitShares

OURS = "this ensemble"


@pytest.fixture(scope="module")
def bars() -> BarPanel:
    return bokeh_panel("AAPL", "IBM").last(900)


@pytest.fixture(scope="module")
def splits(bars: BarPanel) -> DataSplits:
    return DataSplits.by_shares(bars.sessions, SplitShares())


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, splits: DataSplits) -> dict[str, Path]:
    """Members with different networks, features and encoder lengths, from the same splits."""
    folder = tmp_path_factory.mktemp("members")
    long = artifact_of("lstm", encoder_length=60, features=(0, 1, 2))
    short = artifact_of("gru", encoder_length=20, features=(2, 3), seed=3)
    return {"long": _saved(folder / "long" / "1", long, splits), "short": _saved(folder / "short" / "1", short, splits)}


@pytest.fixture(scope="module")
def joined_ensemble(
    bars: BarPanel, folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> JoinedEnsemble:
    return join(bars, folders, tmp_path_factory.mktemp("models") / "joint" / "1")


@pytest.fixture(scope="module")
def stored(joined_ensemble: JoinedEnsemble) -> StoredEnsemble:
    return artifact.load_ensemble(joined_ensemble.folder)


# --- results


def test_the_ensemble_is_served_with_its_members(joined_ensemble: JoinedEnsemble, bars: BarPanel) -> None:
    with Forecaster.load(joined_ensemble.folder) as forecaster:
        forecast, info = forecaster.predict(bars.last(200)), forecaster.model()
    assert np.isfinite(forecast.values).all()
    assert (np.diff(forecast.values, axis=-1) >= 0).all()
    assert info.kind == "ensemble"
    assert [member.name for member in Card.from_json(info.card_json).members] == ["long", "short"]


def test_an_ensemble_that_is_the_first_version_is_the_champion(joined_ensemble: JoinedEnsemble) -> None:
    assert read_aliases(joined_ensemble.folder.parent) == {"champion": 1}


def test_the_members_come_along_unchanged(joined_ensemble: JoinedEnsemble, folders: dict[str, Path]) -> None:
    for name, folder in folders.items():
        for path in folder.rglob("*"):
            if path.is_file():
                copy = joined_ensemble.folder / "members" / name / path.relative_to(folder)
                assert copy.read_bytes() == path.read_bytes()


def test_the_offsets_make_each_quantile_hold_on_the_common_calibration_part(
    stored: StoredEnsemble, folders: dict[str, Path], bars: BarPanel, splits: DataSplits
) -> None:
    below = _share_below(stored, folders, bars, splits.calibration)
    np.testing.assert_allclose(below[:, [0, 2]], np.tile([0.1, 0.9], (4, 1)), atol=0.02)


def test_the_offsets_differ_from_none_and_leave_the_median(stored: StoredEnsemble) -> None:
    offsets = np.array(stored.manifest.conformal.offsets)
    assert (offsets[:, 1] == 0).all()
    assert (offsets[:, [0, 2]] != 0).all()


def test_the_test_part_moves_no_number(
    stored: StoredEnsemble, folders: dict[str, Path], bars: BarPanel, splits: DataSplits, tmp_path: Path
) -> None:
    cut = bars.sessions >= splits.require_test().first
    changed = replace(bars, **{name: np.where(cut, 3 * getattr(bars, name), getattr(bars, name)) for name in PRICES})
    made = artifact.load_ensemble(join(changed, folders, tmp_path / "1").folder)
    found, expected = made.manifest.conformal.offsets, stored.manifest.conformal.offsets
    np.testing.assert_allclose(found, expected, rtol=1e-9)  # another adjustment base rounds differently


def test_the_card_scores_the_ensemble_and_its_members(joined_ensemble: JoinedEnsemble) -> None:
    card = joined_ensemble.summary
    assert card.scores is not None and card.best_member is not None and card.skill is not None  # noqa: PT018
    names = [row.name for row in card.scores.rows]
    assert {OURS, "member long", "member short", "zero return"} <= set(names)
    assert [row.name for row in card.scores.rows if row.is_model] == [OURS]
    assert card.best_member.rival in {"long", "short"}
    assert card.best_member.lower <= card.best_member.improvement <= card.best_member.upper
    assert not card.skill.rival.startswith("member")
    assert "the best of 2 members, " in card.best_member.sentence
    assert Record(joined_ensemble.card, "card").record("best_member").texts("rivals") == ("long", "short")
    assert "baselines, " in card.skill.sentence


def test_its_baselines_know_all_that_any_member_has_seen(
    bars: BarPanel, splits: DataSplits, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other member was calibrated on one more month, which the ensemble's own offsets may not use."""
    place = int(np.searchsorted(bars.sessions, splits.calibration.last)) + 20
    later = replace(
        splits,
        calibration=replace(splits.calibration, last=int(bars.sessions[place])),
        test=replace(splits.require_test(), first=int(bars.sessions[place + 1])),
    )
    short = _saved(tmp_path / "short" / "1", artifact_of("gru", encoder_length=20, features=(2, 3), seed=3), later)
    fitted_on: list[int] = []

    def noting(sample: BaselineSample) -> FittedBaseline:
        fitted_on.append(sample.part.last)
        return SCALED.estimator(sample)

    def plan(*_args: object) -> BaselinePlan:
        return BaselinePlan(baselines=(BaselineModel(name="noting", estimator=noting),), notes=())

    monkeypatch.setattr(import_module("trainers.stock.ensembles.ensemble"), "quick_baselines", plan)
    join(bars, folders | {"short": short}, tmp_path / "joint" / "1")
    assert fitted_on == [splits.train.last, later.calibration.last]


def test_the_card_says_that_too_few_days_refute_no_member(joined_ensemble: JoinedEnsemble) -> None:
    facts = joined_ensemble.summary.weighting
    assert facts is not None
    assert facts.days_short == 5 * 40 - facts.days > 0
    assert facts.sentences == (f"no member could be refuted: {facts.days_short} more calibration days are needed",)


def test_the_card_says_which_days_it_rests_on(joined_ensemble: JoinedEnsemble, splits: DataSplits) -> None:
    found = {split.name: (split.first, split.last) for split in joined_ensemble.summary.splits}
    assert found == {part.name: (part.first, part.last) for part in splits.parts}


def test_the_same_members_and_bars_give_the_same_bytes(
    joined_ensemble: JoinedEnsemble, bars: BarPanel, folders: dict[str, Path], tmp_path: Path
) -> None:
    again = join(bars, folders, tmp_path / "1")
    for name in ("manifest.json", "golden/arrays.safetensors"):
        assert (again.folder / name).read_bytes() == (joined_ensemble.folder / name).read_bytes()


# --- members and weights


def test_members_are_screened_on_their_shared_calibration_days(bars: BarPanel, tmp_path: Path) -> None:
    """Long calibration days, and a member whose offsets put its band far from the outcomes."""
    longer = _longer_calibration(bars)
    good = _saved(tmp_path / "good" / "1", artifact_of("har"), longer)
    fair = _saved(tmp_path / "fair" / "1", artifact_of("har", encoder_length=40), longer)
    awful = _saved(tmp_path / "awful" / "1", _shifted(artifact_of("garch")), longer)
    made = join(bars, {"good": good, "fair": fair, "awful": awful}, tmp_path / "joint" / "1")
    assert made.members == ("fair", "good")
    assert [one.name for one in made.refuted] == ["awful"]
    facts = made.summary.weighting
    assert facts is not None
    assert (facts.rule, facts.refuted, facts.crossed) == ("screened", made.refuted, 0)
    assert facts.blocks == facts.days // 40
    assert longer.selection.last < facts.last < longer.calibration.last
    assert len(facts.regret) == 3
    assert facts.regret[0] < 0  # averaging the awful member in would be worse
    assert "awful is left out: on the calibration days its loss is" in facts.sentences[0]
    assert made.summary.scores is not None and "member awful" in [row.name for row in made.summary.scores.rows]  # noqa: PT018
    assert artifact.load_ensemble(made.folder).manifest.weights == ()


def test_equal_weights_keep_every_member(
    bars: BarPanel, splits: DataSplits, folders: dict[str, Path], tmp_path: Path
) -> None:
    awful = _saved(tmp_path / "awful" / "1", _shifted(artifact_of("har")), splits)
    made = join(bars, folders | {"awful": awful}, tmp_path / "joint" / "1", rule="equal")
    assert made.members == ("awful", "long", "short")
    assert made.summary.weighting is None


def test_the_order_of_the_artifacts_changes_no_byte(
    joined_ensemble: JoinedEnsemble, bars: BarPanel, folders: dict[str, Path], tmp_path: Path
) -> None:
    again = join(bars, dict(reversed(folders.items())), tmp_path / "1")
    for name in ("manifest.json", "golden/arrays.safetensors"):
        assert (again.folder / name).read_bytes() == (joined_ensemble.folder / name).read_bytes()


def test_a_single_survivor_is_an_ensemble_of_one(bars: BarPanel, tmp_path: Path) -> None:
    longer = _longer_calibration(bars)
    good = _saved(tmp_path / "good" / "1", artifact_of("har"), longer)
    awful = _saved(tmp_path / "awful" / "1", _shifted(artifact_of("garch")), longer)
    made = join(bars, {"good": good, "awful": awful}, tmp_path / "joint" / "1")
    assert made.members == ("good",)
    with Forecaster.load(made.folder) as forecaster:
        assert np.isfinite(forecaster.predict(bars.last(200)).values).all()


def test_fitted_weights_need_16_blocks_of_calibration_days(
    bars: BarPanel, folders: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=r"hold 2 independent blocks of 40 sessions.*--weights screened"):
        join(bars, folders, tmp_path / "1", rule="fitted")


def test_fitted_weights_are_in_the_manifest_and_the_card(tmp_path: Path) -> None:
    bars = bokeh_panel("AAPL", "IBM").last(1500)
    sessions = bars.sessions
    longer = _cut(sessions, 500, 660, 1340)
    made = {"a": artifact_of("har"), "b": artifact_of("har", encoder_length=40)}  # which forecast the same
    folders = {name: _saved(tmp_path / name / "1", one, longer) for name, one in made.items()}
    joined = join(bars, folders, tmp_path / "joint" / "1", rule="fitted")
    manifest = artifact.load_ensemble(joined.folder).manifest
    np.testing.assert_allclose(manifest.weights, np.full((2, 3), 0.5), rtol=0, atol=1e-12)
    facts = joined.summary.weighting
    assert facts is not None
    assert facts.lean == facts.blocks / (facts.blocks + 40)
    assert facts.blocks >= 16
    np.testing.assert_allclose(facts.regret, 0, rtol=0, atol=1e-12)


# --- the days


def test_the_common_days_lie_after_all_that_any_member_has_seen() -> None:
    found = find_common_splits(
        {"a": _days(2006, 2007, 2009, 2011), "b": _days(2007, 2008, 2010, 2012), "c": _days(2005, 2006, 2009, 2012)}
    )
    assert (found.train.last, found.selection.last) == (20051231, 20081231)
    assert (found.calibration.first, found.calibration.last) == (20090101, 20091231)
    assert found.test == SplitPart("test", 20110101, 20111231)


def test_calibration_days_that_another_member_was_trained_on_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"calibration parts of old, .*2006.*, and new, .*share no day"):
        find_common_splits({"old": _days(2004, 2005, 2006, 2008), "new": _days(2007, 2008, 2009, 2010)})


def test_test_days_that_another_member_was_calibrated_on_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"test parts of brief, .*, and long, .*share no day"):
        find_common_splits({"brief": _days(2004, 2005, 2007, 2008), "long": _days(2004, 2005, 2009, 2010)})


def test_windows_are_those_that_every_member_can_forecast(
    bars: BarPanel, splits: DataSplits, folders: dict[str, Path]
) -> None:
    """The member with the longer encoder needs more bars before its first window."""
    models = {name: small_model(artifact.load(folder).artifact) for name, folder in folders.items()}
    members = EnsembleMembers.over(bars, models, NO_COVARIATE_FILES)
    counts = {name: len(history.windows(splits.train)) for name, history in members.histories.items()}
    assert counts["long"] < counts["short"]
    windows = members.windows(splits.train)
    assert len(windows) == counts["long"]
    assert (np.diff(windows.positions) >= 0).all()


def test_it_is_judged_by_the_ranking_that_it_serves(tmp_path: Path) -> None:
    bars = bokeh_panel(*UNIVERSE).last(300)
    folders = {str(seed): save_artifact(tmp_path / str(seed), artifact_of("graph", seed=seed)) for seed in (0, 1)}
    folder = save_ensemble(tmp_path / "joint" / "1", folders)
    manifest = artifact.load_ensemble(folder).manifest
    members = EnsembleMembers.over(
        bars, {name: small_model(artifact.load(one).artifact) for name, one in folders.items()}, NO_COVARIATE_FILES
    )
    day = len(bars.sessions) - 25
    windows = TrainingWindows(symbols=np.arange(len(UNIVERSE)), positions=np.full(len(UNIVERSE), day))
    judged = members.combine(manifest, windows, members.forecasts(windows)).scores
    with Forecaster.load(folder) as forecaster:
        served = forecaster.predict(bars.until(int(bars.sessions[day]))).scores
    np.testing.assert_array_equal(judged, served)


# --- refusals


def _other_lag(splits: DataSplits) -> Artifact:
    return _with_splits(artifact_of(target=Target(lag=1)), splits)


def _without_splits(_: DataSplits) -> Artifact:
    return artifact_of(seed=9)


@pytest.mark.parametrize(
    ("make", "error", "cause"),
    [
        (_other_lag, ConfigurationError, "the target of long is"),
        (_without_splits, ArtifactError, "splits is missing"),
    ],
)
def test_a_member_that_does_not_belong_is_refused(
    make: Callable[[DataSplits], Artifact],
    error: type[Exception],
    cause: str,
    bars: BarPanel,
    splits: DataSplits,
    folders: dict[str, Path],
    tmp_path: Path,
) -> None:
    other = save_artifact(tmp_path / "other", make(splits))
    with pytest.raises(error, match=cause):
        join(bars, {"long": folders["long"], "other": other}, tmp_path / "1")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_one_artifact_twice_is_refused(bars: BarPanel, folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="a and b are the same artifact"):
        join(bars, {"a": folders["long"], "b": folders["long"]}, tmp_path / "1")


def test_a_single_artifact_is_refused(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(ensemble, folders["long"], "--bars", tmp_path / "bars.csv", "--out", tmp_path / "1") == 1
    assert "an ensemble needs 2 artifacts or more" in capsys.readouterr().err


def test_an_ensemble_of_ensembles_is_refused(bars: BarPanel, folders: dict[str, Path], tmp_path: Path) -> None:
    inner = save_ensemble(tmp_path / "inner", folders)
    with pytest.raises(ConfigurationError, match="is an ensemble itself; give its members instead"):
        join(bars, {"a": inner, "b": folders["long"]}, tmp_path / "1")


def test_an_ensemble_is_never_overwritten(
    joined_ensemble: JoinedEnsemble, bars: BarPanel, folders: dict[str, Path]
) -> None:
    before = (joined_ensemble.folder / "manifest.json").read_bytes()
    with pytest.raises(ConfigurationError, match="exists already"):
        join(bars, folders, joined_ensemble.folder)
    assert (joined_ensemble.folder / "manifest.json").read_bytes() == before


def test_bars_without_the_test_part_are_refused(
    bars: BarPanel, splits: DataSplits, folders: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="split test"):
        join(bars.until(splits.calibration.last), folders, tmp_path / "1")


# --- the command


def test_members_are_named_by_their_folders() -> None:
    folders = [Path("models/tft/1"), Path("models/tft/2"), Path("elsewhere/tft/1"), Path("mine")]
    assert list(name_members(folders)) == ["tft-1", "tft-2", "tft-1-2", "mine"]


def test_the_command_writes_what_it_made_as_json(
    bars: BarPanel, folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bars.write_csv(tmp_path / "bars.csv")
    app = typer.Typer(add_completion=False)
    app.command()(ensemble)
    files = ["--bars", str(tmp_path / "bars.csv"), "--out", str(tmp_path / "joint")]
    with pytest.raises(SystemExit) as ended:
        run(app, [*map(str, folders.values()), *files, "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (ended.value.code or 0, told["kind"], told["members"]) == (0, "joined", ["long-1", "short-1"])
    assert artifact.is_ensemble(tmp_path / "joint" / "1")


PRICES = ("open", "high", "low", "close", "adj_close")


def _share_below(
    stored: StoredEnsemble, folders: dict[str, Path], bars: BarPanel, part: SplitPart
) -> NDArray[np.float64]:
    """Share of outcomes at or below each quantile, [H, Q]."""
    models = {name: small_model(artifact.load(folder).artifact) for name, folder in folders.items()}
    members = EnsembleMembers.over(bars, models, NO_COVARIATE_FILES)
    windows = members.windows(part)
    values = members.combine(stored.manifest, windows, members.forecasts(windows)).calibrated
    return (members.first.outcomes(windows)[..., None] <= values).mean(axis=0)


def _longer_calibration(bars: BarPanel) -> DataSplits:
    """Splits with 300 calibration days, enough to refute a member."""
    return _cut(bars.sessions, 300, 450, 750)


def _cut(sessions: NDArray[np.int32], *ends: int) -> DataSplits:
    bounds = (0, *ends, len(sessions))
    return DataSplits.by_dates([(int(sessions[a]), int(sessions[b - 1])) for a, b in pairwise(bounds)])


def _shifted(made: Artifact) -> Artifact:
    """The artifact with a band far above the outcomes."""
    conformal = replace(made.manifest.conformal, offsets=((3.0, 3.0, 3.0),) * 4)
    return replace(made, manifest=replace(made.manifest, conformal=conformal))


def _saved(folder: Path, made: Artifact, splits: DataSplits) -> Path:
    return save_artifact(folder, _with_splits(made, splits))


def _with_splits(made: Artifact, splits: DataSplits) -> Artifact:
    told = {part.name: {"first": part.first, "last": part.last, "windows": 1} for part in splits.parts}
    return replace(made, manifest=replace(made.manifest, card={"splits": told}))


def _days(*last_years: int) -> DataSplits:
    """Four parts of whole years from 2000 on, by the last year of each."""
    first = (2000, *(year + 1 for year in last_years))
    return DataSplits.by_dates([(a * 10_000 + 101, b * 10_000 + 1231) for a, b in zip(first, last_years, strict=False)])
