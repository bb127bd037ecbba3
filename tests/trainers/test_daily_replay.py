"""Replays to the last bit, automatic retraining and promotion, and simulated evenings."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_exits import program_exit_code
from daily_runs import HAR, LEARNT, daily_bars, run_evenings, save_daily_model

from predictor.artifact import load_ensemble
from predictor.errors import CalendarEndedError, ConfigurationError, CovariateMissingError, QuantraError
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.jobs import JobRunner, LocalRunner
from predictor.ledger import ForecastRecord, ForecastRole, Ledger, LedgerEvent
from predictor.model_health import ModelVersion
from predictor.registry import promote_version, read_aliases
from trainers.cli.commands import app
from trainers.loop import LoopError
from trainers.stock.daily import DailySettings, renewal, run_due_evenings
from trainers.stock.daily.evenings import EVENING, RETRAINING
from trainers.stock.daily.recorded_models import RecordedModel, load_champion
from trainers.stock.daily.renewal import AutomaticRenewal
from trainers.stock.daily.replay import find_forecasts, record_replays, replay_forecasts, sample_forecasts
from trainers.stock.ensembles import join
from trainers.stock.evaluation.bound_model import find_calendar
from trainers.stock.feature_cache import FeatureCache
from trainers.stock.lifecycle import RetrainingPlan, promote, retrain
from trainers.stock.lifecycle.promotion import REPLAY, roll_back_champion
from trainers.stock.recipe import recipe_of
from trainers.stock.splits import DataSplits
from trainers.stock.training_jobs import TrainingRunner

DAYS = daily_bars().between(20100101, 20100129).sessions.tolist()
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `models/mine/1`, and a ledger of five evenings."""
    folder = tmp_path_factory.mktemp("saved")
    save_daily_model(folder / "models" / "mine")
    run_evenings(folder / "ledger.db", folder / "models" / "mine", daily_bars(DAYS[4]), first=DAYS[0])
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "saved"))


@pytest.fixture
def ledger(folder: Path) -> Iterator[Ledger]:
    with Ledger.open(folder / "ledger.db") as opened:
        yield opened


# --- replays


def test_every_forecast_replays_to_the_last_bit_although_bars_were_revised_since(folder: Path, ledger: Ledger) -> None:
    revised = replace(daily_bars(DAYS[4]), volume=2 * daily_bars(DAYS[4]).volume)
    columns = {name: 1.01 * getattr(revised, name) for name in ("open", "high", "low", "close")}
    assert ledger.add_bars(replace(revised, **columns)).revised > 1000
    records = sample_forecasts(ledger, 1000)
    replays = replay_forecasts(ledger, folder / "models", records)
    assert len(records) == 5 * 3 * 3  # evenings, symbols, and a model with two baselines
    assert [replay.differences for replay in replays] == [()] * len(records)


def test_a_sample_is_the_same_draw_of_one_version(ledger: Ledger) -> None:
    drawn, again = (sample_forecasts(ledger, 4, ModelVersion("mine-har", 1)) for _ in range(2))
    assert [one.number for one in drawn] == [one.number for one in again]
    assert [one.model for one in drawn] == ["mine-har"] * 4


def test_a_replay_names_what_differs(folder: Path, ledger: Ledger) -> None:
    (record,) = sample_forecasts(ledger, 1, ModelVersion("mine", 1))
    moved = replace(record, values=np.nextafter(record.values, np.inf), engine="another")
    (found,) = replay_forecasts(ledger, folder / "models", [moved])
    assert found.differences[0].startswith("values: by at most ")
    assert found.differences[1].startswith("engine: recorded another; now eager, torch ")
    (found,) = replay_forecasts(ledger, folder / "models", [replace(record, weights_hash="ab" * 32)])
    assert found.differences[0].startswith("weights: recorded abababababab, now ")
    (found,) = replay_forecasts(ledger, folder / "models", [replace(record, forecast_id="other")])
    assert found.differences[0].startswith("inputs: forecast id other is now ")


def test_a_replay_without_the_artifact_says_so(folder: Path, ledger: Ledger) -> None:
    records = sample_forecasts(ledger, 2, ModelVersion("mine", 1))
    shutil.rmtree(folder / "models" / "mine" / "1")
    replays = replay_forecasts(ledger, folder / "models", records)
    for found in replays:
        assert (found.result, found.differences) == ("failed", ())
        assert "restore it from a backup" in found.failure
    record_replays(ledger, replays)
    (event,) = ledger.records(LedgerEvent, "kind = ?", (REPLAY,))
    assert (event.detail["failed"], event.reason) == (2, "0 equal, 0 different, 2 failed")


def test_a_replay_of_a_baseline_does_not_load_a_model_of_its_name(folder: Path, ledger: Ledger) -> None:
    save_daily_model(folder / "models" / "mine-har", until=20091130)
    records = sample_forecasts(ledger, 3, ModelVersion("mine-har", 1))
    assert {found.result for found in replay_forecasts(ledger, folder / "models", records)} == {"equal"}


@pytest.mark.parametrize("other", ["mine", "mine_b"])
def test_a_replay_accepts_suspect_bars_only_if_its_own_evening_did(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    asked: list[bool] = []

    def forecast(_: RecordedModel, *__: object, accept_suspect_bars: bool) -> None:
        asked.append(accept_suspect_bars)
        raise ConfigurationError("it is enough to know what is accepted")

    models, (day,) = tmp_path / "models", DAYS[:1]
    shutil.copytree(saved / "models" / "mine", models / "mine-b")
    with Ledger.open(tmp_path / "ledger.db", create=True) as ledger:
        run_due_evenings(
            DailySettings(ledger=ledger, model_folder=models / "mine-b"), daily_bars(day), AFTER_ALL_SESSIONS
        )
        ledger.append([LedgerEvent(kind=EVENING, model=other, session=day, detail={"accept_suspect_bars": True})])
        monkeypatch.setattr(RecordedModel, "forecast", forecast)
        replay_forecasts(ledger, models, sample_forecasts(ledger, 100))
    assert asked == [False, False, False]  # a model with two baselines


def test_a_replay_is_recorded_per_version_for_the_gate_of_a_promotion(folder: Path, ledger: Ledger) -> None:
    records = sample_forecasts(ledger, 1000)
    record_replays(ledger, replay_forecasts(ledger, folder / "models", records))
    events = ledger.records(LedgerEvent, "kind = ?", (REPLAY,))
    found = {event.model: dict(event.detail) for event in events}
    assert found == {
        record.model: {"equal": 15, "different": 0, "failed": 0, "weights_hash": record.weights_hash}
        for record in records
    }
    assert len(found) == len(events) == 3


def test_forecasts_of_replaced_weights_are_counted_apart(folder: Path, ledger: Ledger) -> None:
    (record,) = sample_forecasts(ledger, 1, ModelVersion("mine", 1))
    records = [record, replace(record, weights_hash="ab" * 32)]
    replays = replay_forecasts(ledger, folder / "models", records)
    assert record_replays(ledger, replays, DAYS[4]) == 2
    assert record_replays(ledger, replays, DAYS[4]) == 0
    details = [event.detail for event in ledger.records(LedgerEvent, "kind = ?", (REPLAY,))]
    assert [(detail["equal"], detail["different"]) for detail in details] == [(1, 0), (0, 1)]


def test_an_unknown_forecast_cannot_be_replayed(ledger: Ledger) -> None:
    with pytest.raises(ConfigurationError, match="no forecast 'nothing'"):
        find_forecasts(ledger, "nothing")


def replay(folder: Path, *words: object) -> int:
    flags = ("--ledger", folder / "ledger.db", "--models", folder / "models", "--json")
    return program_exit_code(app, "replay", *words, *flags)


def test_the_command_replays_one_forecast_or_a_sample(folder: Path, ledger: Ledger, capsys: Capture) -> None:
    forecast_id = ledger.records(ForecastRecord)[0].forecast_id
    assert replay(folder, forecast_id) == 0
    assert json.loads(capsys.readouterr().out) == {"equal": 3, "different": [], "failed": []}
    assert replay(folder, "--sample", 7) == 0
    assert json.loads(capsys.readouterr().out)["equal"] == 7
    assert (replay(folder), replay(folder, forecast_id, "--sample", 1)) == (2, 2)


def test_a_ledger_without_forecasts_is_not_replayed(tmp_path: Path, capsys: Capture) -> None:
    Ledger.open(tmp_path / "ledger.db", create=True).close()
    assert replay(tmp_path, "--sample", 10) == 1
    assert "has no forecast that can be replayed" in capsys.readouterr().err


def test_a_difference_needs_a_person(folder: Path, capsys: Capture) -> None:
    shutil.rmtree(folder / "models" / "mine" / "1")
    save_daily_model(folder / "models" / "mine", until=20091130)
    assert replay(folder, "--sample", 1000) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["equal"], len(found["different"]), found["failed"]) == (30, 15, [])
    shutil.rmtree(folder / "models" / "mine" / "1")
    assert replay(folder, "--sample", 1000) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["equal"], found["different"], len(found["failed"])) == (30, [], 15)


# --- renewals


def run_with_renewal(
    folder: Path,
    until: int,
    *,
    can_promote: bool = False,
    runner: JobRunner | None = None,
    cache: FeatureCache | None = None,
) -> list[LedgerEvent]:
    """Run further evenings with automatic renewal, and return the events of trainings and promotions."""
    with Ledger.open(folder / "ledger.db") as opened:
        model_folder, runner = folder / "models" / "mine", runner or LocalRunner()
        settings = DailySettings(ledger=opened, model_folder=model_folder, evidence_every=5, runner=runner)
        renewed = AutomaticRenewal(can_promote=can_promote, cache=cache)
        run_due_evenings(settings, daily_bars(until), AFTER_ALL_SESSIONS, after_evening=renewed)
        return [event for event in opened.records(LedgerEvent) if event.kind in {RETRAINING, "champion"}]


@pytest.fixture
def calendar_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every calendar ends soon, as it does years after a training run."""

    def count_few(_: RecordedModel, __: int) -> int:
        return 10

    monkeypatch.setattr(RecordedModel, "count_sessions_left", count_few)


@pytest.fixture
def gates_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every version passes its gates after one session."""

    def pass_all(*_: object, **__: object) -> tuple[()]:
        return ()

    monkeypatch.setattr(renewal, "check_gates", pass_all)
    monkeypatch.setattr(renewal, "SHADOW_SESSIONS", 1)


@pytest.mark.usefixtures("calendar_ends_soon")
def test_a_due_training_writes_the_next_version_once_and_moves_no_alias(folder: Path) -> None:
    (event,) = run_with_renewal(folder, DAYS[7])
    assert (event.version, event.session, event.reason) == (2, DAYS[5], "the calendar of mine@1 ends")
    assert read_aliases(folder / "models" / "mine") == {"champion": 1}
    with Ledger.open(folder / "ledger.db") as opened:
        assert {one.as_of for one in opened.records(ForecastRecord, "version = 2")} == set(DAYS[6:8])


@pytest.mark.usefixtures("calendar_ends_soon")
def test_a_training_does_not_replace_a_champion_without_an_alias(folder: Path) -> None:
    (folder / "models" / "mine" / "aliases.json").unlink()
    run_with_renewal(folder, DAYS[7])
    assert load_champion(folder / "models" / "mine").reference == "mine@1"
    with Ledger.open(folder / "ledger.db") as opened:
        roles = {one.role for one in opened.records(ForecastRecord, "model = 'mine' and version = 2")}
    assert roles == {ForecastRole.CHALLENGER}


@pytest.mark.slow
@pytest.mark.usefixtures("calendar_ends_soon")
def test_an_ensemble_is_trained_again_too(folder: Path) -> None:
    models = folder / "models"
    parts = DataSplits.by_dates([(20070103, 20090331), (20090401, 20090630), (20090701, 20091030), (20091102, LEARNT)])
    for name in ("har", "garch"):
        recipe = replace(recipe_of(name), calendar=HAR.calendar, target=HAR.target, parts=parts)
        save_daily_model(models / name, recipe=recipe)
    shutil.rmtree(models / "mine")
    folders = {name: models / name / "1" for name in ("har", "garch")}
    join(daily_bars(LEARNT), folders, models / "mine" / "1", rule="equal")
    (event,) = run_with_renewal(folder, DAYS[7])
    assert (event.version, event.reason) == (2, "the calendar of mine@1 ends")
    made = load_ensemble(models / "mine" / "2")
    assert list(made.members) == ["garch", "har"]
    assert sorted(path.name for path in models.joinpath("mine").iterdir() if path.is_dir()) == ["1", "2"]


@pytest.mark.usefixtures("calendar_ends_soon")
def test_a_training_runs_where_the_forecasts_do_with_features_on_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def note(plan: RetrainingPlan, _out: Path, trainer: TrainingRunner) -> None:
        used.append((trainer.jobs, plan.trainings[""].material.cache))
        raise ConfigurationError("it is enough to know the runner")

    used, runner = list[tuple[JobRunner, FeatureCache | None]](), LocalRunner()
    cache = FeatureCache(folder=folder / "features", tell=pytest.fail)
    monkeypatch.setattr(renewal, "retrain", note)
    run_with_renewal(folder, DAYS[7], runner=runner, cache=cache)
    assert used == [(runner, cache)]


def test_no_training_is_due_while_all_is_well(folder: Path) -> None:
    assert run_with_renewal(folder, DAYS[7]) == []


@pytest.mark.usefixtures("calendar_ends_soon")
def test_a_training_that_was_killed_before_its_event_is_not_repeated(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train_and_die(*words: Any) -> None:
        retrain(*words)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(renewal, "retrain", train_and_die)
        with pytest.raises(KeyboardInterrupt):
            run_with_renewal(folder, DAYS[5])
    (event,) = run_with_renewal(folder, DAYS[6])
    assert (event.version, event.session) == (2, DAYS[5])
    assert sorted(path.name for path in (folder / "models" / "mine").glob("[0-9]*")) == ["1", "2"]


@pytest.mark.usefixtures("calendar_ends_soon")
def test_a_training_that_fails_is_recorded_and_the_champion_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise LoopError("the loss is not finite")

    monkeypatch.setattr(renewal, "retrain", fail)
    (event,) = run_with_renewal(folder, DAYS[7])
    assert (event.version, event.reason.endswith("the training failed: the loss is not finite")) == (0, True)
    assert sorted(path.name for path in (folder / "models" / "mine").glob("[0-9]*")) == ["1"]


@pytest.mark.slow
@pytest.mark.usefixtures("calendar_ends_soon")
@pytest.mark.parametrize("can_promote", [True, False])
def test_a_version_that_passes_its_gates_is_promoted_if_the_rule_allows_it(folder: Path, *, can_promote: bool) -> None:
    moves = [event for event in run_with_renewal(folder, 20100625, can_promote=can_promote) if event.kind == "champion"]
    assert read_aliases(folder / "models" / "mine")["champion"] == (2 if can_promote else 1)
    assert [move.version for move in moves] == ([1, 2] if can_promote else [])
    for move in moves[1:]:
        gates = move.detail["gates"]
        assert isinstance(gates, list)
        assert {"losses", "shadow", "replay"} <= {str(gate["name"]) for gate in gates if isinstance(gate, dict)}


@pytest.mark.usefixtures("calendar_ends_soon")
def test_a_champion_whose_calendar_has_ended_is_replaced_without_a_comparison(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def can_forecast(model: RecordedModel, _: int) -> bool:
        return model.reference != "mine@1"

    monkeypatch.setattr(RecordedModel, "can_forecast", can_forecast)
    (move,) = [
        event for event in run_with_renewal(folder, 20100212, can_promote=True) if event.version == 2 and event.detail
    ]
    gates = move.detail["gates"]
    assert isinstance(gates, list)
    assert {gate["name"]: gate["overridden"] for gate in gates if isinstance(gate, dict)}["losses"] is True


@pytest.mark.usefixtures("calendar_ends_soon")
@pytest.mark.parametrize("error", [ConfigurationError, CovariateMissingError])
def test_versions_that_cannot_be_compared_wait(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: type[QuantraError]
) -> None:
    def fail(*_: object) -> None:
        raise error("split test has no room for a target that reaches 20 sessions")

    monkeypatch.setattr(renewal, "compare_versions", fail)
    events = run_with_renewal(folder, 20100212, can_promote=True)
    assert [(event.kind, event.version) for event in events] == [("champion", 1), (RETRAINING, 2)]
    with Ledger.open(folder / "ledger.db") as opened:
        (replayed,) = opened.records(LedgerEvent, "kind = ?", (REPLAY,))
    assert (replayed.version, replayed.detail["different"]) == (2, 0)


@pytest.mark.usefixtures("gates_pass")
def test_a_version_that_was_rolled_back_is_not_promoted_again(folder: Path) -> None:
    save_daily_model(folder / "models" / "mine", 2, until=20091130)
    run_with_renewal(folder, DAYS[5], can_promote=True)
    assert read_aliases(folder / "models" / "mine") == {"champion": 2}
    roll_back_champion(folder / "models" / "mine", reason="bands too narrow")
    run_with_renewal(folder, DAYS[6], can_promote=True)
    assert read_aliases(folder / "models" / "mine") == {"champion": 1}


@pytest.mark.usefixtures("gates_pass")
def test_a_promotion_of_a_killed_evening_is_recorded_by_the_next(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def promote_and_die(*words: Any, **flags: Any) -> None:
        promote(*words, **flags)
        raise KeyboardInterrupt

    save_daily_model(folder / "models" / "mine", 2, until=20091130)
    with monkeypatch.context() as patch:
        patch.setattr(renewal, "promote", promote_and_die)
        with pytest.raises(KeyboardInterrupt):
            run_with_renewal(folder, DAYS[5], can_promote=True)
    events = run_with_renewal(folder, DAYS[6], can_promote=True)
    assert [(event.kind, event.version) for event in events] == [("champion", 1), ("champion", 2)]


@pytest.mark.usefixtures("calendar_ends_soon", "gates_pass")
def test_an_alarm_of_the_replaced_champion_trains_nothing(folder: Path) -> None:
    save_daily_model(folder / "models" / "mine", 2, until=20091130)
    events = run_with_renewal(folder, DAYS[5], can_promote=True)
    assert [(event.kind, event.version) for event in events] == [("champion", 1), ("champion", 2)]


def test_a_damaged_newest_version_does_not_stop_the_evenings(folder: Path) -> None:
    damaged = shutil.copytree(folder / "models" / "mine" / "1", folder / "models" / "mine" / "2")
    (damaged / "weights.safetensors").write_bytes(b"")
    assert [event.version for event in run_with_renewal(folder, DAYS[5], can_promote=True)] == [1]  # the champion
    with Ledger.open(folder / "ledger.db") as opened:
        (evening,) = opened.records(LedgerEvent, "kind = ? and session = ?", (EVENING, DAYS[5]))
    assert "mine@2" in str(evening.detail["failed"])


def test_the_last_session_of_a_model_leaves_room_for_its_targets(folder: Path) -> None:
    champion = load_champion(folder / "models" / "mine")
    calendar = find_calendar(champion.model)
    last = champion.last_session
    assert len(calendar.following(last, 3)) == 3
    with pytest.raises(CalendarEndedError):
        calendar.following(last, 4)
    before = int(calendar.sessions(calendar.first, last)[-3])
    assert [champion.count_sessions_left(day) for day in (before, last, calendar.last)] == [2, 0, 0]
    assert [champion.can_forecast(day) for day in (last, calendar.last)] == [True, False]


def test_a_baseline_whose_calendar_has_ended_is_fitted_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def can_forecast(model: RecordedModel, _: int) -> bool:
        return model.reference != "mine-har@1"

    monkeypatch.setattr(RecordedModel, "can_forecast", can_forecast)
    run_with_renewal(folder, DAYS[6])
    with Ledger.open(folder / "ledger.db") as opened:
        found = {(one.model, one.version) for one in opened.records(ForecastRecord, f"as_of > {DAYS[4]}")}
    assert found == {("mine", 1), ("mine-har", 2), ("mine-garch", 1)}


def test_baselines_of_a_champion_with_other_quantiles_are_fitted_again(folder: Path) -> None:
    save_daily_model(folder / "models" / "mine", 2, recipe=replace(HAR, quantiles=(0.05, 0.5, 0.95)))
    promote_version(folder / "models" / "mine", 2, expected=1, reason="wider bands", gates=())
    run_with_renewal(folder, DAYS[6])
    with Ledger.open(folder / "ledger.db") as opened:
        made = opened.records(ForecastRecord, f"as_of > {DAYS[4]}")
    found = {(one.model, one.version, one.quantiles[0]) for one in made}
    assert found == {("mine", 2, 0.05), ("mine-har", 2, 0.05), ("mine-garch", 2, 0.05)}


def test_a_model_of_a_baseline_s_name_keeps_its_forecasts(folder: Path) -> None:
    models, ledger, day = folder / "models", folder / "ledger.db", DAYS[5]
    save_daily_model(models / "mine-har", until=20091130)
    findings = run_evenings(ledger, models / "mine", daily_bars(day)).findings
    assert [finding for finding in findings if "mine-har made no forecast" in finding] == list(findings) != []
    run_evenings(ledger, models / "mine-har", daily_bars(day))
    with Ledger.open(ledger) as opened:
        made = opened.records(ForecastRecord, "model = 'mine-har' and as_of = ?", (day,))
    assert [one.role for one in made] == [ForecastRole.CHAMPION] * 3


# --- simulations


def simulate(folder: Path, out: Path, *flags: object, until: str = "2010-01-15") -> int:
    words = ("--models", folder / "models", "--bars", folder / "bars.csv", "--out", out, "--json")
    return program_exit_code(app, "simulate", "--from", "2010-01-04", "--to", until, *words, *flags)


def test_a_simulation_leaves_the_models_alone_and_a_second_one_does_nothing(
    folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    daily_bars().write_csv(folder / "bars.csv")
    assert simulate(folder, tmp_path / "out") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["evenings"], found["session"]) == (10, 20100115)
    assert simulate(folder, tmp_path / "out") == 0
    assert json.loads(capsys.readouterr().out)["evenings"] == 0
    assert (tmp_path / "out" / "models" / "mine" / "aliases.json").exists()
    assert sorted(path.name for path in (folder / "models" / "mine").glob("[0-9]*")) == ["1"]


def test_a_simulation_of_another_model_needs_another_folder(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    daily_bars().write_csv(folder / "bars.csv")
    assert simulate(folder, tmp_path / "out") == 0
    shutil.rmtree(folder / "models" / "mine" / "1")
    save_daily_model(folder / "models" / "mine", until=20091130)
    assert simulate(folder, tmp_path / "out") == 1
    assert "is another model than" in capsys.readouterr().err
    (folder / "models" / "mine" / "1").rename(folder / "models" / "mine" / "2")
    assert simulate(folder, tmp_path / "out", "--name", "mine@2") == 1
    assert "has no version 2; choose another --out" in capsys.readouterr().err


def test_a_simulation_whose_copy_was_interrupted_begins_anew(folder: Path, tmp_path: Path) -> None:
    daily_bars().write_csv(folder / "bars.csv")
    (tmp_path / "out" / "models" / "mine").mkdir(parents=True)
    assert simulate(folder, tmp_path / "out") == 0
    assert (tmp_path / "out" / "models" / "mine" / "aliases.json").exists()


def test_two_simulations_in_one_folder_exclude_each_other(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    daily_bars().write_csv(folder / "bars.csv")
    (tmp_path / "out").mkdir()
    with Ledger.open(tmp_path / "out" / "ledger.db", create=True) as opened, opened.claim_run():
        assert simulate(folder, tmp_path / "out") == 1
    assert "is in use by process" in capsys.readouterr().err


def test_a_simulation_gives_the_forecasts_of_the_evenings(folder: Path, ledger: Ledger, tmp_path: Path) -> None:
    daily_bars().write_csv(folder / "bars.csv")
    assert simulate(folder, tmp_path / "out", until="2010-01-08") == 0
    with Ledger.open(tmp_path / "out" / "ledger.db") as opened:
        both = [[one.forecast_id for one in each.records(ForecastRecord)] for each in (opened, ledger)]
    assert both[0] == both[1]


def test_promotions_need_trainings(folder: Path, tmp_path: Path) -> None:
    daily_bars().write_csv(folder / "bars.csv")
    assert simulate(folder, tmp_path / "out", "--promote") == 2
    assert simulate(folder, tmp_path / "out", "--feature-cache", tmp_path / "features") == 2
