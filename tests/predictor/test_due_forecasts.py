"""Labels and scores of due forecasts, and the health that follows from them."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ledger_databases import LedgerDatabase
from ledger_records import forecast_record
from market import bokeh_panel, scaled, without_bars

from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.due_forecasts import PATIENCE, score_due_forecasts, score_outcome
from predictor.evidence import Lamp
from predictor.ledger import (
    EvidenceRecord,
    ForecastRole,
    Label,
    LabelStatus,
    Ledger,
    LedgerEvent,
    Score,
)
from predictor.model_health import ModelVersion, assess_model, choose_worst_lamp, read_level_shares

PANEL = bokeh_panel("AAPL", "IBM", "MSFT").last(40)
DAYS = PANEL.sessions.tolist()
LEVELS = forecast_record(PANEL, 0).quantiles


@pytest.fixture
def ledger(ledger_database: LedgerDatabase) -> Iterator[Ledger]:
    with Ledger.open(ledger_database.address, create=True) as opened:
        yield opened


def log_return(panel: BarPanel, symbol: str, day: int, horizon: int) -> float:
    close = panel.adjusted().close[panel.symbols.index(symbol)]
    return float(np.log(close[day + horizon] / close[day]))


# --- labels and scores


def test_due_horizons_are_scored_once(ledger: Ledger) -> None:
    ledger.append([forecast_record(PANEL, 10)])
    ledger.add_bars(PANEL.until(DAYS[11]))
    assert score_due_forecasts(ledger).scored == 1
    assert score_due_forecasts(ledger).scored == 0
    ledger.add_bars(PANEL)
    assert score_due_forecasts(ledger).scored == 1
    labels, scores = ledger.records(Label), ledger.records(Score)
    assert [label.horizon for label in labels] == [1, 5]
    assert [label.value for label in labels] == pytest.approx([log_return(PANEL, "IBM", 10, h) for h in (1, 5)])
    widths = {1: 0.02, 5: 0.04}
    expected = [
        score_outcome(label.value or 0, np.array([-1, 0, 1]) * widths[label.horizon], np.array(LEVELS))
        for label in labels
    ]
    assert scores == [replace(s, forecast=1, horizon=h) for s, h in zip(expected, (1, 5), strict=True)]


def test_a_score_by_hand() -> None:
    score = score_outcome(0.01, np.array([-0.02, 0.0, 0.02]), np.array(LEVELS))
    assert score.pinball == pytest.approx((0.1 * 0.03 + 0.5 * 0.01 + 0.1 * 0.01) / 3)
    assert (score.below, score.is_inside, score.pit) == ("001", True, pytest.approx(0.7))
    outside = score_outcome(-0.03, np.array([-0.02, 0.0, 0.02]), np.array(LEVELS))
    assert (outside.below, outside.is_inside, outside.pit) == ("111", False, 0.05)
    assert score_outcome(0.02, np.array([-0.02, 0.0, 0.02]), np.array(LEVELS)).below == "001"


def test_scores_do_not_depend_on_the_order_in_which_bars_arrive(tmp_path: Path) -> None:
    found: list[list[Score]] = []
    for name, steps in (("at once", [39]), ("daily", list(range(12, 40)))):
        with Ledger.open(tmp_path / name, create=True) as ledger:
            ledger.append([forecast_record(PANEL, 10, symbol) for symbol in ("AAPL", "IBM")])
            for step in steps:
                ledger.add_bars(PANEL.until(DAYS[step]))
                score_due_forecasts(ledger)
            found.append(sorted(ledger.records(Score), key=lambda score: (score.forecast, score.horizon)))
    assert found[0] == found[1]


def test_horizons_count_from_the_base_session(ledger: Ledger) -> None:
    ledger.append([replace(forecast_record(PANEL, 12, horizons=(1,)), as_of=DAYS[10])])
    ledger.add_bars(PANEL)
    score_due_forecasts(ledger)
    assert [label.value for label in ledger.records(Label)] == pytest.approx([log_return(PANEL, "IBM", 12, 1)])


def _split(panel: BarPanel, day: int) -> BarPanel:
    ratio = np.ones_like(panel.close)
    ratio[panel.symbols.index("IBM"), day] = 4.0
    return replace(scaled(panel, slice(day, None), 0.25), split_ratio=ratio)


@pytest.mark.parametrize("day", [12, 15])
def test_a_split_after_the_forecast_changes_no_score(tmp_path: Path, day: int) -> None:
    plain = replace(PANEL, adj_close=None, split_ratio=np.ones_like(PANEL.close))
    found: list[list[Label]] = []
    for name, panel in (("plain", plain), ("split", _split(plain, day))):
        with Ledger.open(tmp_path / name, create=True) as ledger:
            ledger.append([forecast_record(panel, 10)])
            ledger.add_bars(panel)
            score_due_forecasts(ledger)
            found.append(ledger.records(Label))
    assert [label.value for label in found[1]] == pytest.approx([label.value for label in found[0]], abs=1e-12)


def test_a_dividend_counts_as_return(ledger: Ledger) -> None:
    paid = np.zeros_like(PANEL.close)
    paid[PANEL.symbols.index("IBM"), 11] = 2.0
    panel = replace(PANEL, adj_close=None, cash_dividend=paid)
    ledger.append([forecast_record(panel, 10, horizons=(1,))])
    ledger.add_bars(panel)
    score_due_forecasts(ledger)
    close = panel.close[panel.symbols.index("IBM")]
    assert ledger.records(Label)[0].value == pytest.approx(np.log(close[11] / (close[10] - 2.0)))


def test_log_volatilities_are_labelled_by_the_target_s_formula(ledger: Ledger) -> None:
    ledger.append([replace(forecast_record(PANEL, 10, horizons=(5,)), target_kind="log-volatility")])
    ledger.add_bars(PANEL)
    score_due_forecasts(ledger)
    row = PANEL.symbols.index("IBM")
    logs = np.log(PANEL.high[row, 11:16] / PANEL.low[row, 11:16])
    assert ledger.records(Label)[0].value == pytest.approx(np.log(np.sqrt((logs**2).mean() / (4 * np.log(2)))))


# --- missing bars


@pytest.mark.parametrize(
    ("gap", "reason"), [(slice(11, 12), "halted on"), (slice(11, None), "no bar since"), (slice(0, None), "no bars")]
)
def test_a_missing_bar_is_waited_for_and_then_named(ledger: Ledger, gap: slice, reason: str) -> None:
    panel = without_bars(PANEL, "IBM", gap)
    ledger.append([forecast_record(PANEL, 10, horizons=(1,))])
    ledger.add_bars(panel.until(DAYS[10 + PATIENCE]))
    assert score_due_forecasts(ledger).unscorable == 0
    ledger.add_bars(panel.until(DAYS[11 + PATIENCE]))
    assert score_due_forecasts(ledger).unscorable == 1
    (label,) = ledger.records(Label)
    assert (label.status, label.value, ledger.records(Score)) == (LabelStatus.UNSCORABLE, None, [])
    assert label.reason.startswith(reason)


def test_a_target_session_without_any_bar_is_unscorable(ledger: Ledger) -> None:
    ledger.append([forecast_record(PANEL, 10, horizons=(1,))])
    ledger.add_bars(PANEL.without_sessions([DAYS[11]]))
    assert score_due_forecasts(ledger).unscorable == 1


def test_a_late_bar_adds_a_second_label_and_keeps_the_first(ledger: Ledger) -> None:
    ledger.append([forecast_record(PANEL, 10, horizons=(1,))])
    ledger.add_bars(without_bars(PANEL, "IBM", slice(11, 12)))
    score_due_forecasts(ledger)
    ledger.add_bars(PANEL)
    assert score_due_forecasts(ledger).revised == 1
    first, second = ledger.records(Label)
    assert (first.status, second.status, second.revision) == (LabelStatus.UNSCORABLE, LabelStatus.SCORED, 1)
    assert ledger.records(LedgerEvent) == []


def test_a_run_that_begins_at_the_first_open_forecast_finds_the_same_labels(tmp_path: Path) -> None:
    halted = without_bars(PANEL, "IBM", slice(11, 12))
    found: list[list[Label]] = []
    for remembers in (False, True):
        first_open = 0
        with Ledger.open(tmp_path / str(remembers), create=True) as ledger:
            for day in range(10, 30):
                ledger.add_bars(halted.until(DAYS[day]))
                first_open = score_due_forecasts(ledger, first_open=first_open if remembers else 0).first_open
                ledger.append(forecast_record(PANEL, day, symbol) for symbol in ("AAPL", "IBM") if day < 20)
            found.append(ledger.records(Label))
        assert first_open == 21
    assert found[0] == found[1]
    assert len(found[0]) == 40


# --- bars that cannot be true


def record_days(ledger: Ledger, bars: BarPanel, last: int) -> None:
    """Record the bars of one day after another and score what falls due."""
    for day in range(11, last + 1):
        ledger.add_bars(bars.until(DAYS[day]))
        score_due_forecasts(ledger)


def test_an_impossible_outcome_waits_for_its_correction(ledger: Ledger) -> None:
    ledger.append([forecast_record(PANEL, 10, symbol, [1]) for symbol in ("IBM", "MSFT")])
    record_days(ledger, scaled(PANEL, slice(11, 12), 100.0), 12)
    assert [label.forecast for label in ledger.records(Label)] == [2]
    record_days(ledger, PANEL, 13)
    labels = ledger.records(Label)
    assert [label.value for label in labels] == pytest.approx([log_return(PANEL, s, 10, 1) for s in ("MSFT", "IBM")])
    assert not ledger.records(LedgerEvent)


@pytest.mark.parametrize(
    ("days", "reason"), [(slice(11, 12), "a bad tick"), (slice(11, None), "a factor of 100 on 20.*: currency unit")]
)
def test_an_impossible_outcome_that_stays_is_unscorable_with_the_reason(
    ledger: Ledger, days: slice, reason: str
) -> None:
    ledger.append([forecast_record(PANEL, 10, "IBM", [1])])
    record_days(ledger, scaled(PANEL, days, 100.0), 11 + PATIENCE)
    (label,) = ledger.records(Label)
    assert label.status is LabelStatus.UNSCORABLE
    assert re.search(reason, label.reason)
    assert not ledger.records(Score)


def test_a_change_of_unit_before_a_forecast_leaves_its_outcome(ledger: Ledger) -> None:
    ledger.append([forecast_record(PANEL, 10, "IBM", [1]), forecast_record(PANEL, 8, "MSFT", [3])])
    record_days(ledger, scaled(PANEL, slice(10, None), 100.0), 11)
    values = [label.value for label in ledger.records(Label) if label.forecast == 1]
    assert values == pytest.approx([log_return(PANEL, "IBM", 10, 1)])


def test_a_bad_tick_within_a_horizon_leaves_its_return(ledger: Ledger) -> None:
    ledger.append([forecast_record(PANEL, 10, "IBM", [5])])
    record_days(ledger, scaled(PANEL, slice(12, 13), 100.0), 15)
    (label,) = ledger.records(Label)
    assert label.value == pytest.approx(log_return(PANEL, "IBM", 10, 5))


def test_a_large_move_that_is_possible_is_scored(ledger: Ledger) -> None:
    ledger.append([forecast_record(PANEL, 10, "IBM", [1])])
    record_days(ledger, scaled(PANEL, slice(11, None), 0.03), 13)
    (label,) = ledger.records(Label)
    assert label.value == pytest.approx(log_return(PANEL, "IBM", 10, 1) + np.log(0.03))


# --- revisions


@pytest.mark.parametrize(("factor", "events"), [(1.001, 0), (1.01, 1)])
def test_a_revised_bar_adds_a_label_and_tells_of_large_changes(ledger: Ledger, factor: float, events: int) -> None:
    ledger.append([forecast_record(PANEL, 10)])
    ledger.add_bars(PANEL.until(DAYS[20]))
    score_due_forecasts(ledger)
    revised = scaled(PANEL, slice(11, 12), factor)
    ledger.add_bars(revised)
    assert score_due_forecasts(ledger).revised == 1
    assert score_due_forecasts(ledger).revised == 0
    labels, told = ledger.records(Label), ledger.records(LedgerEvent)
    assert [(label.horizon, label.revision) for label in labels] == [(1, 0), (5, 0), (1, 1)]
    assert labels[2].value == pytest.approx((labels[0].value or 0) + np.log(factor))
    assert len(told) == events
    assert all("IBM: its outcome of" in event.reason and "100 basis points" in event.reason for event in told)


def test_a_rebased_adjusted_close_changes_no_label(ledger: Ledger) -> None:
    ledger.append([forecast_record(PANEL, 10)])
    ledger.add_bars(PANEL.until(DAYS[20]))
    score_due_forecasts(ledger)
    ledger.add_bars(replace(PANEL, adj_close=None if PANEL.adj_close is None else PANEL.adj_close * 0.97))
    assert score_due_forecasts(ledger).revised == 0


# --- health


LONG = bokeh_panel("AAPL", "IBM", "MSFT").last(320)


def _record_forecasts(ledger: Ledger, model: str, widths: FloatArray, days: int = 300) -> None:
    records = [
        forecast_record(LONG, day, symbol, (1,), width=width)
        for day in range(days)
        for symbol, width in zip(LONG.symbols, widths.tolist(), strict=True)
    ]
    ledger.append(replace(record, model=model, forecast_id=f"{model}{record.forecast_id}") for record in records)


def test_a_narrow_model_is_red_and_worse_than_a_good_one(ledger: Ledger) -> None:
    moves = np.abs(np.diff(np.log(LONG.adjusted().close), axis=1))
    good = np.quantile(moves, 0.8, axis=1)
    _record_forecasts(ledger, "good", good)
    _record_forecasts(ledger, "narrow", good / 3)
    ledger.add_bars(LONG)
    score_due_forecasts(ledger)
    health = {
        name: assess_model(ledger, ModelVersion(name, 1), [ModelVersion(other, 1)])
        for name, other in (("good", "narrow"), ("narrow", "good"))
    }
    lamps = {name: {record.monitor: record.lamp for record in records} for name, records in health.items()}
    assert lamps["narrow"] == {
        "coverage too few": Lamp.RED,
        "coverage too many": Lamp.LEARNING,
        "skill against good@1": Lamp.RED,
    }
    assert lamps["good"]["skill against narrow@1"] is Lamp.GREEN
    assert (choose_worst_lamp(health["narrow"]), choose_worst_lamp(health["good"])) == (
        Lamp.RED,
        lamps["good"]["coverage too few"],
    )
    assert ledger.append([*health["good"], *health["narrow"]]) == 6
    state = health["good"][0].state
    assert (state["days"], state["promised"], state["share"]) == (300, 0.8, pytest.approx(0.8, abs=0.02))


def test_forecasts_after_later_bars_and_those_of_clients_carry_no_evidence(ledger: Ledger) -> None:
    ledger.append([replace(forecast_record(PANEL, 10), role=ForecastRole.CLIENT)])
    ledger.add_bars(PANEL)
    ledger.append([forecast_record(PANEL, 11)])
    score_due_forecasts(ledger)
    records = assess_model(ledger, ModelVersion("mine", 1), [])
    assert [record.state["days"] for record in records] == [0, 0, 0, 0]
    assert assess_model(ledger, ModelVersion("other", 1), []) == ()


def test_the_shares_at_or_below_each_quantile_pool_the_symbols_of_a_date(ledger: Ledger) -> None:
    records = [forecast_record(PANEL, day, symbol, (1,), width=0.01) for day in (10, 11) for symbol in PANEL.symbols]
    client = replace(records[0], symbol="OTHER", role=ForecastRole.CLIENT)
    ledger.append([*records, client])
    ledger.add_bars(PANEL)
    score_due_forecasts(ledger)
    expected = [
        [np.mean([log_return(PANEL, symbol, day, 1) <= edge for symbol in PANEL.symbols]) for edge in (-0.01, 0, 0.01)]
        for day in (10, 11)
    ]
    found = read_level_shares(ledger, ModelVersion("mine", 1), 1, 3)
    np.testing.assert_allclose(found, expected)
    assert len(np.unique(found)) > 2


def test_revised_bars_change_no_evidence(ledger: Ledger) -> None:
    ledger.append(forecast_record(PANEL, 11, symbol, (1,), width=w) for symbol, w in (("AAPL", 0.5), ("IBM", 1e-6)))
    ledger.add_bars(PANEL)
    score_due_forecasts(ledger)
    before = assess_model(ledger, ModelVersion("mine", 1), [])
    ledger.add_bars(scaled(PANEL, slice(12, 13), 1.05))
    assert score_due_forecasts(ledger).revised == 1
    assert assess_model(ledger, ModelVersion("mine", 1), []) == before


def test_a_rivals_forecasts_after_the_fact_are_no_evidence(ledger: Ledger) -> None:
    ledger.append([forecast_record(PANEL, 11)])
    ledger.add_bars(PANEL)
    ledger.append([replace(forecast_record(PANEL, 11), model="rival", forecast_id="later")])
    score_due_forecasts(ledger)
    records = assess_model(ledger, ModelVersion("mine", 1), [ModelVersion("rival", 1)])
    assert [record.state["days"] for record in records] == [1, 1, 0, 1, 1, 0]


def test_evidence_does_not_depend_on_the_order_in_which_forecasts_arrive(tmp_path: Path) -> None:
    found: list[list[EvidenceRecord]] = []
    for order in (1, -1):
        records = [forecast_record(PANEL, day, symbol) for day in range(20) for symbol in PANEL.symbols]
        rivals = [replace(one, model="rival", values=one.values * 1.5, forecast_id=f"r{one.as_of}") for one in records]
        with Ledger.open(tmp_path / f"ledger{order}", create=True) as ledger:
            ledger.append([*records, *rivals][::order])
            ledger.add_bars(without_bars(PANEL, "IBM", slice(8, 10)))
            score_due_forecasts(ledger)
            found.append(list(assess_model(ledger, ModelVersion("mine", 1), [ModelVersion("rival", 1)])))
    for one, other in zip(*found, strict=True):
        numbers = {name: pytest.approx(value, rel=1e-12) for name, value in other.state.items()}
        assert (one.monitor, one.lamp, one.state) == (other.monitor, other.lamp, numbers)
    assert [record.state["days"] for record in found[0][:3]] == [20, 20, 20]


def test_evidence_begins_anew_with_a_session(ledger: Ledger) -> None:
    _record_forecasts(ledger, "one", np.array([0.01, 0.01, 0.01]))
    _record_forecasts(ledger, "two", np.array([0.02, 0.02, 0.02]))
    ledger.add_bars(LONG)
    score_due_forecasts(ledger)
    since = LONG.sessions.tolist()[250]
    records = assess_model(ledger, ModelVersion("one", 1), [ModelVersion("two", 1)], first_session=since)
    assert [record.state["days"] for record in records] == [50, 50, 50]
    mean = "select avg(pinball) from score join forecast f on f.id = forecast where model = ? and as_of >= ?"
    ours, theirs = (float(ledger.numbers(mean, (model, since))[0, 0]) for model in ("one", "two"))
    assert records[2].state["mean"] == pytest.approx(theirs - ours)


def test_dates_that_are_not_due_wait(ledger: Ledger) -> None:
    ledger.append([forecast_record(PANEL, 10), forecast_record(PANEL, 11)])
    ledger.add_bars(PANEL.until(DAYS[15]))
    score_due_forecasts(ledger)
    records = assess_model(ledger, ModelVersion("mine", 1), [])
    assert [(record.horizon, record.state["days"]) for record in records] == [(1, 2), (1, 2), (5, 1), (5, 1)]
    assert choose_worst_lamp(records) is Lamp.LEARNING
