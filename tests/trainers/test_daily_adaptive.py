"""`quantra daily --adaptive`: widths that follow past outcomes, and replays of them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from artifacts import save_artifact
from command_exits import program_exit_code
from daily_runs import daily_bars, save_daily_model

from predictor.adaptive_widths import WIDTHS, AdaptiveWidths
from predictor.artifact import load
from predictor.bars import BarPanel
from predictor.errors import ConfigurationError
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.ledger import ForecastRecord, Ledger, LedgerEvent
from predictor.registry import promote_version
from trainers.cli.commands import app
from trainers.stock.daily import DailySettings, DailySummary, run_due_evenings
from trainers.stock.daily.evenings import adapt_widths
from trainers.stock.daily.recorded_models import load_champion
from trainers.stock.daily.replay import replay_forecasts, sample_forecasts
from trainers.stock.data import NO_COVARIATE_FILES

UNTIL = 20101230
DAYS = daily_bars(UNTIL).between(20101201, UNTIL).sessions.tolist()
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_daily_model(tmp_path_factory.mktemp("models") / "mine")


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def run_adaptively(
    ledger: Path, models: Path, bars: BarPanel, *, first: int = 0, adaptive: bool = True
) -> DailySummary:
    with Ledger.open(ledger, create=True) as opened:
        settings = DailySettings(ledger=opened, model_folder=models / "mine", adaptive=adaptive)
        return run_due_evenings(settings, bars, AFTER_ALL_SESSIONS, first=first)


def champions_of(ledger: Path) -> list[ForecastRecord]:
    with Ledger.open(ledger) as opened:
        return opened.records(ForecastRecord, "role = 'champion'")


def test_the_bands_are_scaled_around_the_median_and_other_models_are_not(
    models: Path, ledger: Path, tmp_path: Path
) -> None:
    summary = run_adaptively(ledger, models, daily_bars(DAYS[0]))
    run_adaptively(tmp_path / "plain.db", models, daily_bars(DAYS[0]), adaptive=False)
    assert summary.widths is not None
    factors = summary.widths.factors
    assert (factors[:, 1] == 1).all()
    assert (factors[:, [0, 2]] != 1).all()
    for ours, plain in zip(champions_of(ledger), champions_of(tmp_path / "plain.db"), strict=True):
        median = plain.values[:, 1:2]
        np.testing.assert_allclose(ours.values, median + factors * (plain.values - median), rtol=1e-12)
        assert ours.forecast_id != plain.forecast_id
    with Ledger.open(ledger) as one, Ledger.open(tmp_path / "plain.db") as other:
        baselines = [opened.records(ForecastRecord, "role = 'baseline'") for opened in (one, other)]
        assert [record.values.tobytes() for record in baselines[0]] == [r.values.tobytes() for r in baselines[1]]


def test_by_default_nothing_is_adaptive(models: Path, ledger: Path) -> None:
    summary = run_adaptively(ledger, models, daily_bars(DAYS[0]), adaptive=False)
    assert (summary.widths, summary.notes) == (None, ())
    with Ledger.open(ledger) as opened:
        assert opened.records(LedgerEvent, f"kind = '{WIDTHS}'") == []


def test_bands_that_were_too_wide_on_past_days_are_narrowed_and_others_widened(models: Path, tmp_path: Path) -> None:
    names = {"narrow": -0.4, "right": 0.0, "wide": 0.4}
    for name, by in names.items():
        move_bounds(models / "mine" / "1", tmp_path / name / "1", by)
    champions = [load_champion(tmp_path / name) for name in names]
    narrow, right, wide = (
        adapt_widths(one, daily_bars(UNTIL), NO_COVARIATE_FILES).factors[:, [0, 2]] for one in champions
    )
    assert (narrow > 1.2).all()
    np.testing.assert_allclose(right, 1.0, atol=0.2)
    assert (wide < 0.85).all()


def move_bounds(source: Path, out: Path, by: float) -> None:
    """Save a copy whose bounds lie farther from the median by a share of the window's volatility."""
    made = load(source).artifact
    offsets = np.array(made.manifest.conformal.offsets) + by * np.array([-1.0, 0.0, 1.0])
    conformal = replace(made.manifest.conformal, offsets=tuple(map(tuple, offsets.tolist())))
    save_artifact(out, replace(made, manifest=replace(made.manifest, conformal=conformal)))


def test_evenings_that_are_caught_up_have_the_widths_of_evenings_in_time(
    models: Path, ledger: Path, tmp_path: Path
) -> None:
    for day in DAYS[:3]:
        run_adaptively(tmp_path / "each.db", models, daily_bars(day))
    run_adaptively(ledger, models, daily_bars(DAYS[2]), first=DAYS[0])
    each, together = champions_of(tmp_path / "each.db"), champions_of(ledger)
    assert [(one.as_of, one.values.tobytes()) for one in each] == [
        (one.as_of, one.values.tobytes()) for one in together
    ]
    assert len({one.as_of for one in each}) == 3


def test_adaptive_forecasts_replay_to_the_last_bit_although_bars_were_revised_since(models: Path, ledger: Path) -> None:
    run_adaptively(ledger, models, daily_bars(DAYS[2]), first=DAYS[0])
    run_adaptively(ledger, models, daily_bars(DAYS[3]), adaptive=False)
    with Ledger.open(ledger) as opened:
        columns = {name: 1.01 * getattr(daily_bars(DAYS[3]), name) for name in ("open", "high", "low", "close")}
        assert opened.add_bars(replace(daily_bars(DAYS[3]), **columns)).revised > 1000
        replays = replay_forecasts(opened, models, sample_forecasts(opened, 1000))
    assert len(replays) == 4 * 3 * 3  # evenings, symbols, and a model with two baselines
    assert [replay.differences for replay in replays] == [()] * len(replays)


def test_forecasts_of_a_challenger_that_was_promoted_on_their_evening_replay(ledger: Path, tmp_path: Path) -> None:
    models = save_daily_model(tmp_path / "models" / "mine")
    save_daily_model(models / "mine", 2)

    def promote_and_die(*_: object) -> int:
        promote_version(models / "mine", 2, expected=1, reason="a test", gates=())
        raise KeyboardInterrupt

    with Ledger.open(ledger, create=True) as opened:
        settings = DailySettings(ledger=opened, model_folder=models / "mine", adaptive=True)
        with pytest.raises(KeyboardInterrupt):
            run_due_evenings(settings, daily_bars(DAYS[0]), AFTER_ALL_SESSIONS, after_evening=promote_and_die)
        run_due_evenings(settings, daily_bars(DAYS[0]), AFTER_ALL_SESSIONS)
        replays = replay_forecasts(opened, models, sample_forecasts(opened, 1000))
    assert {(replay.record.model, replay.record.version, replay.differences) for replay in replays} == {
        (model, version, ()) for model, version in (("mine", 1), ("mine", 2), ("mine-har", 1), ("mine-garch", 1))
    }


def test_recorded_widths_are_read_as_they_were(models: Path, ledger: Path) -> None:
    summary = run_adaptively(ledger, models, daily_bars(DAYS[0]))
    champion = load_champion(models / "mine")
    made = adapt_widths(champion, daily_bars(DAYS[0]), NO_COVARIATE_FILES)
    with Ledger.open(ledger) as opened:
        read = AdaptiveWidths.read(opened, champion.version, summary.session)
        (event,) = opened.records(LedgerEvent, f"kind = '{WIDTHS}'")
        assert AdaptiveWidths.read(opened, champion.version, DAYS[1]) is None
    assert read is not None
    assert (read.horizons, read.factors.tobytes()) == ((1, 3), made.factors.tobytes())
    low, _, high = made.factors[0]
    assert event.reason.startswith(f"width below and above the median: {low:.2f} and {high:.2f}, 1 ahead; ")


def test_a_second_run_writes_nothing(models: Path, ledger: Path) -> None:
    first, second = (run_adaptively(ledger, models, daily_bars(DAYS[0])) for _ in range(2))
    assert (second.rows, second.bars, second.notes) == (0, 0, first.notes)


def test_bars_without_the_calibration_days_are_refused_and_no_evening_is_recorded(models: Path, ledger: Path) -> None:
    short = daily_bars(DAYS[0]).between(20100104, DAYS[0])
    with pytest.raises(ConfigurationError, match=r"adaptive widths of mine@1 need its calibration days, from 2009-"):
        run_adaptively(ledger, models, short)
    with Ledger.open(ledger) as opened:
        assert (opened.records(ForecastRecord), opened.records(LedgerEvent)) == ([], [])


def test_the_command_and_the_page_say_that_the_widths_are_adaptive(
    models: Path, tmp_path: Path, ledger: Path, capsys: Capture
) -> None:
    daily_bars(DAYS[0]).write_csv(tmp_path / "bars.csv")
    shutil.copytree(models, tmp_path / "models")
    words = ("daily", "--bars", tmp_path / "bars.csv", "--models", tmp_path / "models", "--ledger", ledger)
    program_exit_code(app, *words, "--adaptive", "--report", tmp_path / "page.html")
    assert "1 session ahead: the band is adaptive, " in " ".join(capsys.readouterr().out.split())
    assert "1 session ahead: the band is adaptive, " in (tmp_path / "page.html").read_text()
    program_exit_code(app, *words, "--json")
    widths = json.loads(capsys.readouterr().out)["widths"]
    assert [row[1] for row in widths] == [1.0, 1.0]
