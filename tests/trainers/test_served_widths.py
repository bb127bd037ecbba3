"""`quantra serve --adaptive`: servers apply the widths that `quantra daily --adaptive` has recorded."""

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from daily_runs import daily_bars, save_daily_model
from serving import hosted_server

from predictor.adaptive_widths import WIDTHS, AdaptiveWidths
from predictor.arrays import FloatArray
from predictor.call_context import CallContext
from predictor.client import QuantraClient
from predictor.errors import ConfigurationError, LedgerError
from predictor.forecast import Attribution, Detail, Forecast, TargetPoint
from predictor.forecaster import Forecaster
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import ExplanationQuery, GapPolicy, Instance
from predictor.ledger import ForecastRecord, Ledger, LedgerEvent
from predictor.model_health import ModelVersion
from predictor.server import ServerSettings
from predictor.server.host import LoadedService, load_service
from predictor.service import ModelWorker
from predictor.service.adaptive_model import scale_around_median
from trainers.stock.daily import DailySettings, run_due_evenings

DAYS = daily_bars(20101230).between(20101201, 20101230).sessions.tolist()
Caplog = pytest.LogCaptureFixture


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_daily_model(tmp_path_factory.mktemp("models") / "mine")


@pytest.fixture(scope="module")
def three_evenings(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with the evenings of the second to the fourth day, which tests only read."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    run_evenings(path, models, DAYS[3], first=DAYS[1])
    return path


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A ledger without widths."""
    with Ledger.open(tmp_path / "ledger.db", create=True):
        return tmp_path / "ledger.db"


def run_evenings(ledger: Path, models: Path, day: int, *, first: int = 0) -> None:
    with Ledger.open(ledger, create=True) as opened:
        settings = DailySettings(ledger=opened, model_folder=models / "mine", adaptive=True)
        run_due_evenings(settings, daily_bars(day), AFTER_ALL_SESSIONS, first=first)


@contextmanager
def loading(models: Path, ledger: Path) -> Generator[LoadedService]:
    """The service of `quantra ui`, which records nothing."""
    settings = ServerSettings(models=models, ledger=str(ledger), adaptive=True)
    loaded = load_service(settings, lambda _: None, lambda: None, None, ModelWorker.wake, is_recording=False)
    try:
        yield loaded
    finally:
        loaded.close()


def instance_of(day: int) -> Instance:
    """The bars that `quantra daily` forecasts from."""
    bars = daily_bars(day)
    return Instance(input=bars, gap_policy=GapPolicy.IGNORE, allow_incomplete_last_bar=True)


def ask(loaded: LoadedService, day: int) -> Forecast:
    (outcome,) = loaded.service.predict("mine", [instance_of(day)], CallContext()).result()
    assert isinstance(outcome, Forecast)
    return outcome


def forecast_calibrated(models: Path, day: int) -> Forecast:
    return Forecaster.load(models / "mine" / "1").predict(instance_of(day))


def read_forecasts(ledger: Path, day: int) -> list[ForecastRecord]:
    """The champion's forecasts of an evening."""
    with Ledger.open(ledger) as opened:
        return opened.records(ForecastRecord, "role = 'champion' and as_of = ?", (day,))


def read_widths(ledger: Path) -> list[AdaptiveWidths]:
    with Ledger.open(ledger) as opened:
        return [AdaptiveWidths.of(event) for event in opened.records(LedgerEvent, f"kind = '{WIDTHS}'")]


def assert_same_numbers(forecast: Forecast, records: list[ForecastRecord]) -> None:
    assert [record.symbol for record in records] == list(forecast.symbols)
    assert [record.values.tobytes() for record in records] == [row.tobytes() for row in forecast.values]
    assert {record.forecast_id for record in records} == {forecast.forecast_id}


def test_every_evening_is_forecast_with_its_own_widths_to_the_last_bit(models: Path, three_evenings: Path) -> None:
    with loading(models, three_evenings) as loaded:
        made = [ask(loaded, day) for day in DAYS[1:4]]
    assert len({widths.factors.tobytes() for widths in read_widths(three_evenings)}) > 1
    for day, forecast in zip(DAYS[1:4], made, strict=True):
        assert_same_numbers(forecast, read_forecasts(three_evenings, day))
        assert forecast.prices is not None
        assert forecast.anchor_price is not None
        np.testing.assert_array_equal(forecast.prices, forecast.anchor_price[:, None, None] * np.exp(forecast.values))
        assert forecast.warnings[-1].endswith(f"that quantra daily recorded for {forecast.as_of_session}")


def test_a_later_bar_gets_the_newest_widths_and_names_their_day(models: Path, three_evenings: Path) -> None:
    with loading(models, three_evenings) as loaded:
        forecast = ask(loaded, DAYS[5])
    expected = read_widths(three_evenings)[-1].apply(forecast_calibrated(models, DAYS[5]))
    assert forecast.values.tobytes() == expected.values.tobytes()
    assert "recorded for 2010-12-06, before the last bar of 2010-12-08; run quantra daily" in forecast.warnings[-1]


def test_a_bar_before_the_first_evening_gets_no_widths_that_know_later_outcomes(
    models: Path, three_evenings: Path
) -> None:
    with loading(models, three_evenings) as loaded:
        forecast = ask(loaded, DAYS[0])
    assert forecast.values.tobytes() == forecast_calibrated(models, DAYS[0]).values.tobytes()
    assert "the first adaptive widths of mine@1 are of 2010-12-02, after the last bar" in forecast.warnings[-1]


def test_explanations_add_up_to_the_adaptive_forecast(models: Path, three_evenings: Path) -> None:
    with loading(models, three_evenings) as loaded:
        forecast = ask(loaded, DAYS[3])
        targets = tuple(TargetPoint(h, q) for h in (3, 1) for q in (0.9, 0.5, 0.1))
        query = ExplanationQuery(
            instance=instance_of(DAYS[3]), targets=targets, symbols=("MSFT", "AAPL"), detail=Detail.CELLS
        )
        explanation = loaded.service.explain("mine", query, CallContext()).result()
    assert [(one.horizon, one.quantile) for one in explanation.attributions] == list(targets)
    for one in explanation.attributions:
        h, q = TargetPoint(one.horizon, one.quantile).index_in(forecast.horizons, forecast.quantiles)
        np.testing.assert_array_equal(one.prediction, forecast.values[[2, 0], h, q])
        np.testing.assert_allclose(one.per_row.sum(axis=1), one.prediction - one.baseline_prediction, atol=1e-9)
        assert one.warnings[-1] == forecast.warnings[-1]


def test_an_explanation_without_widths_is_the_calibrated_one(models: Path, ledger: Path) -> None:
    query = ExplanationQuery(instance=instance_of(DAYS[3]))
    with loading(models, ledger) as loaded:
        explanation = loaded.service.explain("mine", query, CallContext()).result()
    plain = Forecaster.load(models / "mine" / "1").explain(query)
    for ours, expected in zip(explanation.attributions, plain.attributions, strict=True):
        assert ours.per_row.tobytes() == expected.per_row.tobytes()
        assert "the ledger has no adaptive widths of mine@1" in ours.warnings[-1]


def attribution(models: Path, quantile: float) -> Attribution:
    query = ExplanationQuery(instance=instance_of(DAYS[3]), targets=(TargetPoint(1, quantile),), detail=Detail.CELLS)
    (one,) = Forecaster.load(models / "mine" / "1").explain(query).attributions
    return one


def test_contributions_are_scaled_around_those_of_the_median(models: Path) -> None:
    upper, median = attribution(models, 0.9), attribution(models, 0.5)
    values = median.prediction + 1.5 * (upper.prediction - median.prediction)
    made = scale_around_median(upper, median, 1.5, values)
    np.testing.assert_allclose(made.per_row, median.per_row + 1.5 * (upper.per_row - median.per_row), atol=1e-15)
    for name in ("per_time", "cells", "baseline_prediction"):
        ours, high, middle = (getattr(one, name) for one in (made, upper, median))
        np.testing.assert_allclose(ours, middle + 1.5 * (high - middle), atol=1e-15)


def test_the_conformal_row_takes_what_crossing_quantiles_move(models: Path) -> None:
    upper, median = attribution(models, 0.9), attribution(models, 0.5)
    made, moved = (scale_around_median(upper, median, 1.0, upper.prediction + by) for by in (0.0, 0.01))
    difference = moved.per_row - made.per_row
    row = upper.row_names.index("conformal")
    np.testing.assert_allclose(difference[:, row], 0.01)
    assert (np.delete(difference, row, axis=1) == 0).all()


def change_widths(ledger: Path, widths: AdaptiveWidths, factors: FloatArray | None = None) -> None:
    """Record widths of the first day; `factors` may be malformed."""
    event = replace(widths.event, session=DAYS[0], key="")
    if factors is not None:
        event = replace(event, detail={**event.detail, "factors": factors.tolist()})
    with Ledger.open(ledger) as opened:
        opened.append([event])


def test_widths_of_another_model_of_this_name_are_not_used(models: Path, three_evenings: Path, ledger: Path) -> None:
    change_widths(ledger, replace(read_widths(three_evenings)[0], weights_hash="f" * 64))
    with loading(models, ledger) as loaded:
        forecast = ask(loaded, DAYS[3])
    assert forecast.values.tobytes() == forecast_calibrated(models, DAYS[3]).values.tobytes()
    assert "the adaptive widths of mine@1 on 2010-12-01 are those of other weights: ffff" in forecast.warnings[-1]


def test_widths_of_other_quantiles_are_not_used(models: Path, three_evenings: Path, ledger: Path) -> None:
    change_widths(ledger, read_widths(three_evenings)[0], np.ones((2, 5)))
    with loading(models, ledger) as loaded:
        forecast = ask(loaded, DAYS[3])
    assert forecast.values.tobytes() == forecast_calibrated(models, DAYS[3]).values.tobytes()
    assert "are for the horizons [1, 3] and 5 quantiles, not for [1, 3] and 3" in forecast.warnings[-1]


@pytest.mark.parametrize(
    "wrong", [np.full((2, 3), -0.5), np.ones(2), np.ones((3, 3)), np.array([[1.0, None, 1.0]] * 2)]
)
def test_malformed_widths_are_named_in_the_log_and_left_out(
    models: Path, three_evenings: Path, ledger: Path, caplog: Caplog, wrong: FloatArray
) -> None:
    change_widths(ledger, read_widths(three_evenings)[0], wrong)
    with loading(models, ledger) as loaded:
        forecast = ask(loaded, DAYS[3])
    assert "the ledger has no adaptive widths of mine@1" in forecast.warnings[-1]
    assert "not used: " in caplog.text
    assert "of mine@1 on 2010-12-01" in caplog.text


def test_a_ledger_that_cannot_be_read_any_more_keeps_the_widths_and_is_logged_once(
    models: Path, three_evenings: Path, tmp_path: Path, caplog: Caplog
) -> None:
    copy = tmp_path / "copy.db"
    copy.write_bytes(three_evenings.read_bytes())
    with loading(models, copy) as loaded:
        assert loaded.widths is not None
        before = ask(loaded, DAYS[3])
        copy.write_bytes(b"damaged" * 1000)
        for _ in range(2):
            loaded.widths.follow()
        assert ask(loaded, DAYS[3]).values.tobytes() == before.values.tobytes()
    logged = [record for record in caplog.records if "adaptive widths stay as they are" in record.getMessage()]
    assert [record.levelno for record in logged] == [logging.WARNING]


def test_a_missing_ledger_is_refused_and_not_made(models: Path, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"none\.db"), loading(models, tmp_path / "none.db"):
        pass
    assert not (tmp_path / "none.db").exists()


def test_a_damaged_ledger_is_refused(models: Path, tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"damaged" * 1000)
    with pytest.raises(LedgerError, match=r"ledger\.db"), loading(models, tmp_path / "ledger.db"):
        pass


def test_adaptive_widths_need_a_ledger() -> None:
    with pytest.raises(ConfigurationError, match="--adaptive has no widths without a ledger; add --ledger LEDGER"):
        ServerSettings(models=Path("models"), adaptive=True)


@pytest.mark.slow
def test_a_running_server_uses_the_widths_of_the_next_evening(models: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    run_evenings(ledger, models, DAYS[1], first=DAYS[1])
    with (
        hosted_server(models, "--ledger", str(ledger), "--adaptive") as running,
        QuantraClient(running.target) as client,
    ):
        before = client.predict(instance_of(DAYS[2]))
        assert "before the last bar" in before.warnings[-1]
        run_evenings(ledger, models, DAYS[2])
        end_s = time.monotonic() + 30
        after = before
        while "before the last bar" in after.warnings[-1] and time.monotonic() < end_s:
            after = client.predict(instance_of(DAYS[2]))
        assert_same_numbers(after, read_forecasts(ledger, DAYS[2]))
        assert ModelVersion(after.model, after.version).reference == "mine@1"


def test_factors_are_not_read_from_other_events() -> None:
    event = LedgerEvent(kind=WIDTHS, model="mine", version=1, session=DAYS[0])
    with pytest.raises(LedgerError, match="the adaptive widths of mine@1 on 2010-12-01 cannot be read: KeyError"):
        AdaptiveWidths.of(event)
