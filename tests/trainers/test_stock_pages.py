"""Pages of evaluations, backtests and audits: given numbers, and no injected scripts."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from audits import audit_record
from backtests import TERMS, backtest, track
from evaluations import evaluation
from pages import HOSTILE, assert_loads_nothing, page_of
from rich.console import Console

from predictor.audit_record import AuditVerdict
from predictor.skill import Verdict
from trainers.stock.audit.page import render_audit
from trainers.stock.backtest import summary_json
from trainers.stock.backtest.book import Book, run_book
from trainers.stock.backtest.command import backtest_tables
from trainers.stock.backtest.page import build_cost_table, measure_drawdowns, render_backtest, smooth
from trainers.stock.backtest.result import (
    create_track,
    describe_sharpe,
    find_break_even_cost,
    judge,
    measure_annual_returns,
    measure_lead,
    sharpe_at,
)
from trainers.stock.evaluation.evaluation_set import Interval
from trainers.stock.evaluation.report import (
    build_horizon_table,
    build_loss_table,
    build_winkler_table,
    format_plain,
    format_span,
    render_evaluation,
)

NAME = "demo/1"


# --- all pages


PAGES: dict[str, Callable[[], str]] = {
    "evaluation": lambda: render_evaluation(NAME, evaluation(adaptive=True)),
    "backtest": lambda: render_backtest(NAME, backtest()),
    "audit": lambda: render_audit(NAME, audit_record()),
}
HOSTILE_PAGES: dict[str, Callable[[], str]] = {
    "evaluation": lambda: render_evaluation(HOSTILE, evaluation(adaptive=True, symbol=HOSTILE, note=HOSTILE)),
    "backtest": lambda: render_backtest(HOSTILE, backtest(note=HOSTILE, symbol=HOSTILE)),
    "audit": lambda: render_audit(HOSTILE, audit_record(subject=HOSTILE, note=HOSTILE)),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_nothing_and_is_always_the_same(name: str) -> None:
    text = PAGES[name]()
    assert_loads_nothing(text)
    assert text == PAGES[name]()
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


@pytest.mark.parametrize("name", PAGES)
def test_names_and_notes_that_others_wrote_are_shown_as_text(name: str) -> None:
    text = HOSTILE_PAGES[name]()
    page = page_of(text)
    assert HOSTILE not in text
    assert page.text.count(HOSTILE) >= 3
    assert page.tags == page_of(PAGES[name]()).tags


# --- evaluations


def test_the_page_holds_every_loss_with_its_interval() -> None:
    found = evaluation()
    page = page_of(render_evaluation(NAME, found))
    for row in found.rows:
        assert {row.mean.value, *(h.pinball.value for h in row.horizons)} <= set(page.numbers)
    assert "30.00" in page.text
    assert "26.25 to 33.75" in page.text


def test_the_least_of_each_column_is_bold_and_the_model_is_marked() -> None:
    ours, *others = build_loss_table(evaluation(seeds=False)).lines
    assert all(cell.is_best for cell in ours.cells)
    assert not any(cell.is_best for line in others for cell in line.cells)
    assert [line.is_model for line in (ours, *others)] == [True, False, False]


@pytest.mark.parametrize(
    ("lower", "upper", "verdict"),
    [(0.01, 0.03, "better"), (-0.01, 0.03, "undecided"), (-0.03, -0.01, "worse")],
)
def test_the_verdict_of_an_evaluation_comes_first(lower: float, upper: float, verdict: str) -> None:
    found = evaluation(skill=Interval(value=(lower + upper) / 2, lower=lower, upper=upper))
    text = render_evaluation(NAME, found)
    assert text.index(f'<section class="verdict {verdict}"') < text.index('<section id="losses"')
    assert found.skill.sentence in page_of(text).words


def test_too_few_days_give_no_verdict() -> None:
    found = evaluation()
    short = replace(found, skill=replace(found.skill, days_short=7))
    assert '<section class="verdict undecided"' in render_evaluation(NAME, short)


def test_the_page_holds_calibration_and_winkler_scores_before_and_after() -> None:
    found = evaluation()
    page = page_of(render_evaluation(NAME, found))
    for row in (found.calibration.before, found.calibration.after):
        for h in row.horizons:
            assert {share.value for share in (*h.below, h.band, h.winkler)} <= set(page.numbers)
    assert {gain.value for gain in found.calibration.gain} <= set(page.numbers)
    assert {419.0, 83.0} <= set(page.numbers)
    assert {share.value for one in found.pit for share in one.shares} <= set(page.numbers)


def test_what_the_offsets_did_stands_before_and_after_side_by_side() -> None:
    made = evaluation().calibration
    first = build_winkler_table(evaluation()).lines[0]
    before, after = made.before.horizons[0], made.after.horizons[0]
    values = (before.band, after.band, before.winkler, after.winkler, made.gain[0])
    assert [cell.value for cell in first.cells] == [419.0, *(one.value for one in values)]


def test_adaptive_offsets_are_shown_where_they_were_made() -> None:
    gains = {0.0345, -0.0456}
    assert gains <= set(page_of(render_evaluation(NAME, evaluation(adaptive=True))).numbers)
    assert "adaptive" not in page_of(render_evaluation(NAME, evaluation())).text


def test_seeds_are_reported_with_their_spread() -> None:
    page = page_of(render_evaluation(NAME, evaluation()))
    assert {0.00307, 0.00313, 0.00357, 0.7611, 0.0151, 0.0177} <= set(page.numbers)
    assert "± 1.10" in page.text
    assert "The recipe from seeds 0, 1, 2" in page.words


def test_an_evaluation_without_other_seeds_notes_it() -> None:
    page = page_of(render_evaluation(NAME, evaluation(seeds=False)))
    assert "the effect of its seed is unknown" in page.words
    assert "Luck of one training" not in page.text


def test_every_symbol_has_a_line() -> None:
    page = page_of(render_evaluation(NAME, evaluation(symbol="XYZ")))
    assert {211, 0.00431, -0.0171, 0.7312} <= set(page.numbers)
    assert "XYZ" in page.text


def test_the_forecast_of_a_single_value_is_in_the_tables_and_on_no_chart() -> None:
    text = render_evaluation(NAME, evaluation())
    charts = text.split('<div id="chart-1"')[1].split("</section>")[0] + text.split('<div id="chart-2"')[1]
    drawn = charts.split('<section id="calibration"')[0].split("<table")[0]
    assert "GARCH(1,1)-t" in drawn
    assert "zero return" not in drawn
    assert page_of(text).text.count("zero return") >= 4


def test_a_score_of_the_model_by_horizon_has_its_interval_below() -> None:
    ours = evaluation().rows[0].horizons[0]
    assert ours.correlation.ic is not None
    cell = next(line for line in build_horizon_table(evaluation()).lines if line.name == "IC").cells[0]
    assert (cell.value, cell.note) == (ours.correlation.ic.value, format_span(ours.correlation.ic, format_plain))


def test_a_score_that_is_unknown_is_a_dash() -> None:
    found = evaluation()
    ours, *others = found.rows
    unknown = replace(ours, mean=Interval(value=0.003, lower=float("nan"), upper=float("nan")))
    assert "nan" not in page_of(render_evaluation(NAME, replace(found, rows=(unknown, *others)))).text


# --- backtests


def test_the_page_of_a_backtest_says_its_sharpe_ratio_with_its_error_net_and_gross() -> None:
    found = backtest()
    figures = found.strategy.figures
    page = page_of(render_backtest(NAME, found))
    assert describe_sharpe(found) in page.words
    assert f"{figures.net.sharpe:+.2f} ± {figures.net.sharpe_error:.2f} after costs" in page.words
    assert f"{figures.gross.sharpe:+.2f} ± {figures.gross.sharpe_error:.2f} before" in page.words


def test_the_page_holds_the_figures_of_every_book() -> None:
    found = backtest()
    numbers = set(page_of(render_backtest(NAME, found)).numbers)
    for one in found.tracks:
        assert {one.figures.net.annual_return, one.figures.net.sharpe, one.figures.turnover} <= numbers


def test_the_verdict_of_a_backtest_needs_the_whole_interval_on_one_side() -> None:
    good = backtest(strategy=track("model", 4, drift=0.01))
    assert judge(good) is Verdict.BETTER
    assert '<section class="verdict better"' in render_backtest(NAME, good)
    figures = good.strategy.figures
    for errors, verdict in ((1.95, Verdict.UNDECIDED), (1.97, Verdict.BETTER)):
        near = replace(figures, net=replace(figures.net, sharpe_error=figures.net.sharpe / errors))
        assert judge(replace(good, strategy=replace(good.strategy, figures=near))) is verdict
    lost = replace(figures, net=replace(figures.net, sharpe=-figures.net.sharpe))
    assert judge(replace(good, strategy=replace(good.strategy, figures=lost))) is Verdict.WORSE


def test_the_lead_over_every_benchmark_stands_on_the_page_and_in_json() -> None:
    found = backtest()
    numbers = set(page_of(render_backtest(NAME, found)).numbers)
    leads = [measure_lead(found, one) for one in found.benchmarks]
    assert {lead for lead, _ in leads} <= numbers
    assert summary_json(found)["leads"] == [
        {"over": one.name, "sharpe": lead, "sharpe_error": error}
        for one, (lead, error) in zip(found.benchmarks, leads, strict=True)
    ]


def test_the_assumed_return_of_a_delisting_stands_on_the_page_in_the_table_and_in_json() -> None:
    found = replace(backtest(), terms=replace(TERMS, delisting_return=-0.35))
    told = "20 sessions without a bar, or at the end, {}at a return of -35 % on the last close"
    assert told.format("") in page_of(render_backtest(NAME, found)).words
    console = Console(width=200, highlight=False)
    with console.capture() as shown:
        console.print(backtest_tables(found))
    assert told.format("it is closed ") in " ".join(shown.get().split())
    assert summary_json(found)["terms"] == {
        "horizon": 2,
        "rebalance": 1,
        "delay": 1,
        "cost_bps": 20,
        "borrow_bps": 100,
        "delisting_return": -0.35,
        "tranches": 2,
        "longest_halt": 20,
        "sessions_a_year": 252,
    }


def test_the_table_of_a_backtest_fits_a_terminal_of_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    found = backtest(strategy=track("model, vol-target", 4, drift=0.01))
    Console(width=80, highlight=False).print(backtest_tables(found))
    told = capsys.readouterr().out
    assert "…" not in told
    lead, error = measure_lead(found, found.benchmarks[0])
    assert f"{lead:+.2f}" in told
    assert f"± {error:.2f}" in told


def test_a_strategy_that_never_moves_has_no_sharpe_ratio() -> None:
    flat = create_track("model", np.arange(20110301, 20110331, dtype=np.int32), _flat(), TERMS)
    found = backtest(strategy=flat)
    assert describe_sharpe(found) == "model: the returns are constant, so the Sharpe ratio is undefined."
    assert judge(found) is Verdict.UNDECIDED


def _flat() -> Book:
    return run_book(np.zeros((30, 1)), np.ones((30, 1)), TERMS)


def test_what_a_book_paid_adds_up() -> None:
    book = track("model", 1).book
    paid = measure_annual_returns(book, TERMS)
    assert paid.gross - paid.trading - paid.borrowing == pytest.approx(paid.net)
    assert paid.trading == pytest.approx(252 * 0.002 * book.traded.mean())
    assert paid.borrowing > 0
    cells = build_cost_table(backtest()).lines[0].cells
    assert [cell.value for cell in cells[:4]] == [paid.gross, -paid.trading, -paid.borrowing, paid.net]


def test_a_sharpe_ratio_at_another_cost_is_that_of_a_book_which_paid_it() -> None:
    random = np.random.default_rng(5)
    wanted, closes = random.uniform(-1, 1, (60, 2)) / 2, np.exp(np.cumsum(0.01 * random.standard_normal((60, 2)), 0))
    book, dearer = (run_book(wanted, closes, replace(TERMS, cost_bps=cost)) for cost in (20, 50))
    assert sharpe_at(book, TERMS, 50) == pytest.approx(sharpe_at(dearer, replace(TERMS, cost_bps=50), 50))
    assert sharpe_at(book, TERMS, 50)[0] < sharpe_at(book, TERMS, 20)[0]


def test_at_the_cost_at_which_it_breaks_even_a_book_has_a_sharpe_ratio_of_0() -> None:
    book = track("model", 4, drift=0.01).book
    even = find_break_even_cost(book, TERMS)
    assert even is not None
    assert sharpe_at(book, TERMS, even)[0] == pytest.approx(0, abs=1e-9)


def test_the_page_tells_who_decided_when_and_on_which_terms() -> None:
    page = page_of(render_backtest(NAME, backtest()))
    assert "22011-04-012011-05-192000-03-012011-03-31" in page.text
    assert "20 basis points are charged on every unit bought or sold, 100 a year" in page.words
    assert "1 session after the decision, at the close" in page.words


def test_a_fall_counts_from_the_start_too() -> None:
    np.testing.assert_allclose(measure_drawdowns(np.array([0.9, 1.2, 0.6, 1.2])), [-0.1, 0, -0.5, 0])


def test_turnover_is_smoothed_over_the_sessions_there_have_been() -> None:
    daily = np.concatenate([[21.0, 0.0], np.zeros(20), [4.2]])
    np.testing.assert_allclose(smooth(daily)[[0, 1, 20, 21, 22]], [21, 10.5, 1, 0, 0.2], atol=1e-12)


# --- audits


def test_the_page_of_an_audit_holds_every_check_with_its_verdict_and_numbers() -> None:
    record = audit_record()
    page = page_of(render_audit(NAME, record))
    for check in record.checks:
        assert f"{check.verdict.value}{check.name}" in page.text
        assert check.sentence in page.text
    assert {0.0217, -0.0011, 0.0023, 0.0219, 0.031, 0.71, 0.0131, 40, 1.62, 0.74, 0.04} <= set(page.numbers)
    assert "Not proven: that the bars themselves were known on their day" in page.words


def test_the_page_of_an_audit_distinguishes_a_leak_from_another_failure() -> None:
    record = audit_record()
    text = render_audit(NAME, record)
    assert '<section class="verdict worse"' in text
    assert "no sign of a leak" in text
    leaky = replace(record.future, verdict=AuditVerdict.FAIL, changed=("forecast",), first_changed=20110505)
    assert "There is a leak" in page_of(render_audit(NAME, replace(record, future=leaky))).words


def test_an_audit_without_sharpe_ratios_shows_dashes() -> None:
    record = audit_record()
    still = replace(record.trials, sharpe=None, probabilistic=None, deflated=None)
    page = page_of(render_audit(NAME, replace(record, trials=still)))
    assert "None" not in page.text
    assert "it has no Sharpe ratio" in page.text
