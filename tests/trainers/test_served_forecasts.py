"""`--serve-best`: the simple model is reported until the champion is shown to be better."""

import json
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from pathlib import Path

import numpy as np
import pytest
from daily_runs import HAR, daily_bars, run_evenings, save_daily_model
from ledger_records import forecast_record
from market import bokeh_panel
from pages import page_of

from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.covariates import CovariateSource
from predictor.due_forecasts import score_due_forecasts
from predictor.errors import ConfigurationError
from predictor.evidence import compare_losses
from predictor.forecast import Forecast
from predictor.ledger import EvidenceRecord, ForecastRecord, ForecastRole, Ledger
from predictor.model_health import SKILL, ModelVersion, assess_model, choose_skill_lamp
from trainers.stock.daily import DailySettings
from trainers.stock.daily.evenings import summarise
from trainers.stock.daily.page import render_evenings
from trainers.stock.daily.recorded_models import RecordedModel
from trainers.stock.daily.served_forecasts import ServedForecast, choose_forecasts
from trainers.stock.recipe import recipe_of

MINE = ModelVersion("mine", 1)
SIMPLE = {"HAR": ModelVersion("mine-har", 1), "GARCH": ModelVersion("mine-garch", 1)}


def skill_of(rival: ModelVersion, theirs: FloatArray, ours: FloatArray) -> EvidenceRecord:
    """The test of the champion's daily losses against a rival's."""
    skill = compare_losses(theirs, ours, horizon=1)
    state = {name: value if isfinite(value) else None for name, value in skill._asdict().items()}
    lamp, monitor = choose_skill_lamp(skill), f"{SKILL} {rival.reference}"
    return EvidenceRecord(model="mine", version=1, monitor=monitor, horizon=1, session=1, lamp=lamp, state=state)


def served_each_evening(ours: FloatArray, rivals: Mapping[str, FloatArray]) -> list[ServedForecast]:
    """The choice after each date's losses."""
    return [
        choose_forecasts(
            [skill_of(SIMPLE[name], losses[:days], ours[:days]) for name, losses in rivals.items()],
            MINE,
            {name: SIMPLE[name] for name in rivals},
            [1],
        )[0]
        for days in range(1, ours.size + 1)
    ]


def losses_of(seed: int, *, excess: float = 0.0) -> FloatArray:
    """500 daily losses that differ from those of other seeds by noise and an excess."""
    common, own = np.random.default_rng(0), np.random.default_rng(seed)
    return 0.01 * (common.gamma(4, 0.25, 500) + 0.2 * own.standard_normal(500) + 0.5 + excess)


@pytest.mark.parametrize("seed", range(1, 6))
def test_without_signal_the_simple_model_is_served_on_every_evening(seed: int) -> None:
    served = served_each_evening(losses_of(seed), {"HAR": losses_of(100 + seed), "GARCH": losses_of(200 + seed)})
    assert {one.name for one in served} == {"HAR"}


def test_a_better_champion_takes_over_and_stays() -> None:
    rivals = {"HAR": losses_of(2, excess=0.1), "GARCH": losses_of(3, excess=0.1)}
    names = [one.name for one in served_each_evening(losses_of(1), rivals)]
    takeover = names.index("mine@1")
    assert names == ["HAR"] * takeover + ["mine@1"] * (len(names) - takeover)
    assert takeover >= 59


def test_a_champion_that_beats_only_the_simplest_model_is_not_served() -> None:
    rivals = {"HAR": losses_of(2, excess=0.2), "GARCH": losses_of(3, excess=-0.2)}
    last = served_each_evening(losses_of(1), rivals)[-1]
    assert last.name == "GARCH"
    assert "GARCH, because mine@1 is shown to be worse (" in last.sentence


def test_the_sentence_has_the_bounds_in_percent_of_the_simple_model_s_loss() -> None:
    theirs, ours = losses_of(2), losses_of(1)
    skill = compare_losses(theirs, ours, horizon=1)
    low, high = (100 * bound / theirs.mean() for bound in (skill.lower, skill.upper))
    (served,) = choose_forecasts([skill_of(SIMPLE["HAR"], theirs, ours)], MINE, {"HAR": SIMPLE["HAR"]}, [1])
    bounds = f"{low:+.1f} % to {high:+.1f} % smaller loss"
    assert served.sentence == f"1 session ahead: HAR, because mine@1 is not shown to be better ({bounds})"


def test_a_simple_model_without_evidence_is_served() -> None:
    (served,) = choose_forecasts([], MINE, SIMPLE, [5])
    expected = "5 sessions ahead: HAR, because mine@1 has too few outcomes to be shown to be better"
    assert served.sentence == expected


def test_a_simple_model_without_a_forecast_is_skipped_and_named() -> None:
    better = skill_of(SIMPLE["GARCH"], losses_of(3, excess=0.2), losses_of(1))
    cases = ([], ["HAR"]), ([], ["HAR", "GARCH"]), ([better], ["HAR"]), ([better], ["GARCH"])
    served = [choose_forecasts(evidence, MINE, SIMPLE, [1], absent)[0] for evidence, absent in cases]
    assert [(one.name, one.reason.split("; ")[-1]) for one in served] == [
        ("GARCH", "HAR made no forecast"),
        ("mine@1", "HAR and GARCH made no forecast"),
        ("mine@1", "HAR made no forecast"),
        ("HAR", "mine@1 has too few outcomes to be shown to be better"),
    ]
    assert served[2].reason.startswith("it is shown to be better than GARCH (")


@pytest.mark.parametrize(("widths", "expected"), [((1, 4), "mine@1"), ((4, 1), "HAR")])
def test_the_recorded_forecasts_decide(widths: tuple[float, float], expected: str, tmp_path: Path) -> None:
    panel = bokeh_panel("IBM").last(100)
    days = panel.sessions.tolist()
    mine, har = (
        [forecast_record(panel, day, horizons=(1,), width=0.012 * width) for day in range(95)] for width in widths
    )
    simple = [replace(one, model="mine-har", forecast_id=f"har {one.as_of}", role=ForecastRole.BASELINE) for one in har]
    with Ledger.open(tmp_path / "ledger.db", create=True) as ledger:
        ledger.append([*mine, *simple])
        ledger.add_bars(panel.until(days[-1]))
        score_due_forecasts(ledger)
        evidence = assess_model(ledger, MINE, [SIMPLE["HAR"]])
    assert [one.name for one in choose_forecasts(evidence, MINE, {"HAR": SIMPLE["HAR"]}, [1])] == [expected]


# --- evenings


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    garch = replace(recipe_of("garch"), calendar=HAR.calendar, target=HAR.target, encoder_length=10, parts=HAR.parts)
    return save_daily_model(tmp_path_factory.mktemp("models") / "mine", recipe=garch)


def test_the_page_and_the_summary_report_the_served_model(models: Path, tmp_path: Path) -> None:
    bars = daily_bars(20100108)
    run_evenings(tmp_path / "ledger.db", models / "mine", bars)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        settings = DailySettings(ledger=ledger, model_folder=models / "mine", serve_best=True)
        summary = summarise(settings)
        page = page_of(render_evenings(settings, summary))
        har = ledger.records(ForecastRecord, "model = 'mine-har'")
    assert [(one.horizon, one.name) for one in summary.served] == [(1, "HAR"), (3, "HAR")]
    assert summary.served[0].sentence in page.words
    expected = sorted((100 * np.expm1(one.values[-1]) for one in har), key=lambda row: -row[1])
    assert page.numbers[: 3 * len(har)] == pytest.approx([row[k] for row in expected for k in (1, 0, 2)])
    assert json.dumps(summary.to_json()["served"]).count("mine-har@1") == 2


def test_the_summary_names_a_baseline_that_failed_that_evening(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forecast, ledger = RecordedModel.forecast, tmp_path / "ledger.db"

    def fail_har(model: RecordedModel, bars: BarPanel, covariates: CovariateSource, **flags: bool) -> Forecast:
        if model.version.model == "mine-har":
            raise ConfigurationError("its bars are too few")
        return forecast(model, bars, covariates, **flags)

    run_evenings(ledger, models / "mine", daily_bars(20100107))
    monkeypatch.setattr(RecordedModel, "forecast", fail_har)
    run_evenings(ledger, models / "mine", daily_bars(20100108))
    with Ledger.open(ledger) as opened:
        summary = summarise(DailySettings(ledger=opened, model_folder=models / "mine", serve_best=True))
    assert [one.name for one in summary.served] == ["GARCH", "GARCH"]
    assert all(one.reason.endswith("; HAR made no forecast") for one in summary.served)


def test_by_default_the_champion_is_reported(models: Path, tmp_path: Path) -> None:
    assert run_evenings(tmp_path / "ledger.db", models / "mine", daily_bars(20100108)).served == ()
