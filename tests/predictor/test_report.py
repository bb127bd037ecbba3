"""Forecast report: given numbers, escaped text, and no external resources."""

import base64
import hashlib
import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from importlib.resources import files
from pathlib import Path

import canned_service
import numpy as np
import pytest
from audits import audit_record
from cards import SENTENCE, full_card
from market import bokeh_panel
from pages import HOSTILE, assert_loads_nothing, page_of
from plotly.graph_objects import Figure, Scatter
from plotly.offline import get_plotlyjs_version

from predictor import canonical
from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.card import FITS_EXPLAINED, Card
from predictor.catalog import FeatureInfo
from predictor.errors import ArtifactError, ConfigurationError, InvalidInputError, MissingPackageError
from predictor.forecast import Attribution, Forecast, RowKind
from predictor.internals import INTERNALS_NOTE, Internal, InternalAxis
from predictor.price_paths import simulate_paths
from predictor.report import (
    NO_PAST,
    PageBuilder,
    ReportContent,
    check_report,
    render_report,
    select_past_forecasts,
    write_forecast_chart,
    write_report,
)
from predictor.report.explanation import ROW_MEANINGS
from predictor.report.templates import PageFigures

QUANTILES = (0.1, 0.5, 0.9)
PUBLISHED = "vIX4rQ+27IY/I5C9WYr+3fkZ5p4dTqc6SMIR9HtgBQSgSywAzzRCB9gUJ+JHP2UoeHpGPHRg5QC4STUJVJVafA=="
"""SHA-512 of `plotly-finance.min.js` in plotly.js-finance-dist-min 4.1.0 as npm has it."""


def forecast(symbol: str = "AAPL") -> Forecast:
    values = np.array([[[-0.017, 0.0012, 0.018], [-0.041, 0.0031, 0.0437]]])
    anchor = np.array([430.47])
    return replace(
        canned_service.forecast((symbol,)),
        values=values,
        returns=values,
        prices=anchor[:, None, None] * np.exp(values),
        anchor_price=anchor,
    )


def attribution(symbol: str = "AAPL") -> Attribution:
    found = canned_service.attribution((symbol,))
    return replace(found, per_row=found.per_row + 0.001)  # no contribution is 0, because pages omit those


def content(card: Mapping[str, Json] | None = None, symbol: str = "AAPL") -> ReportContent:
    bars = bokeh_panel("AAPL").last(300)
    return ReportContent(
        info=replace(
            canned_service.model_info(), card_json=canonical.to_bytes(full_card() if card is None else card).decode()
        ),
        bars=replace(bars, symbols=(symbol,)),
        forecast=forecast(symbol),
        attributions=(attribution(symbol), replace(attribution(symbol), quantile=0.9)),
        symbols=(symbol,),
    )


def test_the_report_holds_every_number_of_the_forecast() -> None:
    page = page_of(render_report(content()))

    given = forecast()
    assert given.prices is not None
    assert set(given.prices.ravel().tolist()) <= set(page.numbers)
    assert set(np.expm1(given.values).ravel().tolist()) <= set(page.numbers)
    assert "431.81" in page.text
    assert "2013-03-08" in page.text


def test_the_report_draws_thirty_paths_from_the_last_close() -> None:
    given = content()
    text = render_report(given)
    paths = simulate_paths(given.forecast, given.bars)
    half, rare = np.quantile(100 * paths.drawdowns({"AAPL": 1.0}, paths.days), [0.5, 0.95])
    expected = f"at most {half:.1f} % of today's price in half of the paths, and more than {rare:.1f} % in 1 of 20"
    assert expected.replace(" %", "\N{NO-BREAK SPACE}%") in page_of(text).text
    assert "30 possible paths of AAPL over 5 sessions" in text


def test_a_report_of_short_bars_says_why_it_has_no_paths() -> None:
    short = replace(content(), bars=content().bars.last(200))
    assert (
        "There are none: AAPL: has 155 past paths, need 250; give a longer history."
        in page_of(render_report(short)).words
    )


def test_a_report_of_a_volatility_model_has_no_section_of_paths() -> None:
    alone = replace(content(), forecast=replace(forecast(), returns=None, prices=None, target_kind="log-volatility"))
    assert "ossible paths" not in page_of(render_report(alone)).words


def test_the_report_holds_every_contribution_in_basis_points() -> None:
    page = page_of(render_report(content()))

    assert set((10_000 * attribution().per_row[0]).tolist()) <= set(page.numbers)
    assert (10_000 * attribution().prediction[0]).item() in page.numbers


def test_the_report_holds_every_score_and_loss_and_share_of_the_card() -> None:
    page = page_of(render_report(content()))

    assert {39.81, 88.4, 124.9, 177.2, 40.02, 0.81, 0.77} <= set(page.numbers)
    assert {0.36 + 0.08 / 7, 0.371 + 0.06 / 7 + 0.0008 * 7} <= set(page.numbers)
    assert {0.1 + 0.01 * 0.4, 0.9 + 0.04 * -0.4} <= set(page.numbers)


def test_the_least_loss_of_each_column_is_bold_and_the_model_is_marked() -> None:
    text = render_report(content())

    assert '<td class="best"><data value="39.81">' in text
    assert '<td class="best"><data value="88.1">' in text
    assert '<td><data value="88.4">' in text
    assert '<tr class="model"><th>this model</th>' in text


@pytest.mark.parametrize(
    ("lower", "upper", "kind", "meaning"),
    [
        (-0.01, 0.018, "undecided", "Zero lies within the interval"),
        (0.002, 0.018, "better", "All of the interval lies above zero"),
        (-0.02, -0.001, "worse", "All of the interval lies below zero"),
    ],
)
def test_the_verdict_follows_the_interval_and_says_its_sentence(
    lower: float, upper: float, kind: str, meaning: str
) -> None:
    text = render_report(content(full_card(lower=lower, upper=upper)))

    assert f'<section class="verdict {kind}"' in text
    assert SENTENCE in page_of(text).words
    assert meaning in text


def test_too_short_a_test_split_gives_no_verdict() -> None:
    text = render_report(content(full_card(lower=0.002, days_short=12)))

    assert '<section class="verdict undecided"' in text
    assert "More held-out days are needed for a verdict" in text


def test_the_median_is_shown_first() -> None:
    asked = content()
    text = render_report(replace(asked, attributions=asked.attributions[::-1]))

    assert 'id="pick-2" checked' in text
    assert 'id="pick-1" checked' not in text


def test_a_card_without_scores_says_that_the_skill_is_unknown() -> None:
    page = page_of(render_report(content({})))

    assert "This model's skill is unknown" in page.text
    assert "Scores of the model and the baselines" not in page.text


def test_what_the_names_of_baselines_mean_and_the_notes_stand_on_the_page() -> None:
    card = json.loads(json.dumps(full_card()))
    card["scores"]["rows"][1]["fit"] = "calibrated"
    page = page_of(render_report(content(card | {"notes": ["a note on the scores"]})))

    assert FITS_EXPLAINED[1:] in page.words
    assert "a note on the scores" in page.text
    assert FITS_EXPLAINED[1:] not in page_of(render_report(content())).words


def test_the_page_loads_nothing() -> None:
    assert_loads_nothing(render_report(replace(content(), audit=audit_record())))


def test_a_hostile_symbol_and_card_are_shown_as_text() -> None:
    hostile = full_card(sentence=HOSTILE)
    text = render_report(content(hostile, symbol=HOSTILE))

    assert HOSTILE not in text
    page = page_of(text)
    clean = page_of(render_report(content()))
    assert page.tags == clean.tags
    assert HOSTILE in page.text


def test_the_command_to_ask_again_quotes_the_symbol() -> None:
    page = page_of(render_report(content(symbol="A B; rm")))

    assert "--symbol 'A B; rm'" in page.text
    assert '.select(["A B; rm"])' in page.text


def test_the_same_content_gives_the_same_page() -> None:
    assert render_report(content()) == render_report(content())


def test_returns_without_prices_are_shown_as_returns() -> None:
    asked = content()
    without = replace(asked, forecast=replace(asked.forecast, prices=None, lag=1))

    page = page_of(render_report(without))

    assert "So there are no prices" in page.text
    assert np.expm1(-0.017) in page.numbers


ADJUSTED_TOO = "The bars have an adjusted close; the prices shown are the close."
SPLITS_RECORDED = "Prices are raw, as traded: the bars record splits separately, so a split shows as a jump."


def with_splits(bars: BarPanel, ratio: float) -> BarPanel:
    ratios = np.ones_like(bars.close)
    ratios[0, -20] = ratio
    return replace(bars, adj_close=None, split_ratio=ratios)


COLUMNS: dict[str, tuple[Callable[[BarPanel], BarPanel], str]] = {
    "adjusted close": (lambda bars: bars, ADJUSTED_TOO),
    "adjusted close, equal but for rounding": (lambda bars: replace(bars, adj_close=bars.close * (1 + 1e-9)), ""),
    "nothing": (lambda bars: replace(bars, adj_close=None), ""),
    "a split": (lambda bars: with_splits(bars, 2.0), SPLITS_RECORDED),
    "no split": (lambda bars: with_splits(bars, 1.0), ""),
}


@pytest.mark.parametrize("columns", COLUMNS)
def test_prices_are_called_what_their_columns_say(columns: str) -> None:
    asked, (changed, note) = content(), COLUMNS[columns]

    page = page_of(render_report(replace(asked, bars=changed(asked.bars))))

    assert [one for one in (ADJUSTED_TOO, SPLITS_RECORDED) if one in page.words] == [note] * bool(note)


def test_returns_without_prices_have_no_note_on_prices() -> None:
    asked = content()
    page = page_of(render_report(replace(asked, forecast=replace(asked.forecast, prices=None))))
    assert ADJUSTED_TOO not in page.words


@pytest.mark.parametrize("symbols", [("AAPL",), ("AAPL", "GOOG", "IBM")])
def test_a_page_says_the_warnings_of_a_forecast_once(symbols: tuple[str, ...], tmp_path: Path) -> None:
    values = np.zeros((len(symbols), 2, 3))
    shown = replace(canned_service.forecast(symbols), values=values, returns=values)
    bars = bokeh_panel(*symbols).last(100)
    asked = replace(content(), bars=bars, forecast=shown, attributions=(), symbols=symbols)

    write_forecast_chart(tmp_path / "chart.html", bars, shown, symbols, Card.from_json("{}"))

    for text in (render_report(asked), (tmp_path / "chart.html").read_text("utf-8")):
        assert text.count("Nothing is real") == 1


def as_of(day: date, *targets: date) -> Forecast:
    return replace(forecast(), as_of_session=day, target_sessions=targets)


FEBRUARY = as_of(date(2013, 2, 1), date(2013, 2, 4), date(2013, 2, 8))


@pytest.mark.parametrize(
    ("seen_to", "note"),
    [
        (20130101, "The training used bars until 2013-01-01, so what followed was new to the model."),
        (
            20130205,
            "The training used bars until 2013-02-05, perhaps also what followed 2013-02-01: those forecasts may",
        ),
        (0, "The model's card does not say whether its training used what followed."),
    ],
)
def test_a_past_forecast_says_whether_the_training_used_what_followed(seen_to: int, note: str) -> None:
    split = {"calibration": {"first": 20100104, "last": seen_to, "windows": 9}}
    card = Card.from_json(canonical.to_bytes({"splits": split} if seen_to else {}).decode())

    told = select_past_forecasts([FEBRUARY], date(2013, 3, 1), card).note

    assert told.startswith(f"Grey: forecasts of this model as of 2013-02-01, from the bars until then. {note}")


def test_what_the_weights_started_from_was_used_by_the_training_too() -> None:
    parent: Json = {"weights_hash": "ab", "symbols": ["IBM"], "seen_from": 20010102, "seen_until": 20130205}
    card = Card.from_json(canonical.to_bytes({"ancestors": [parent]}).decode())

    assert "until 2013-02-05, perhaps also" in select_past_forecasts([FEBRUARY], date(2013, 3, 1), card).note


def test_a_past_forecast_of_days_to_come_is_left_out() -> None:
    card = Card.from_json("{}")
    late = as_of(date(2013, 2, 28), date(2013, 3, 4), date(2013, 3, 8))

    assert select_past_forecasts([late], date(2013, 3, 1), card) == NO_PAST


def test_scores_and_ranks_are_shown_where_the_model_ranks() -> None:
    asked = content()
    ranked = replace(asked.forecast, scores=np.array([[1.625, -0.375]]), ranks=np.array([[3, 7]], np.int32))

    page = page_of(render_report(replace(asked, forecast=ranked)))

    assert {1.625, -0.375, 3, 7} <= set(page.numbers)
    assert "Rank" in page.text
    assert "Rank" not in page_of(render_report(asked)).text


def test_internals_are_shown_as_what_the_network_turned_to() -> None:
    selection = Internal(
        name="past selection", axis=InternalAxis.INPUTS, labels=("ret_1", "vol_20"), values=np.array([[0.8125, 0.1875]])
    )
    attention = Internal(
        name="tft/attention", axis=InternalAxis.SESSIONS, labels=("-1", "0", "+1"), values=np.array([[0.25, 0.5, 0.25]])
    )
    asked = content()
    told = replace(asked.attributions[0], internals=(selection, attention))

    text = render_report(replace(asked, attributions=(told,)))

    assert INTERNALS_NOTE in text
    assert "<h3>past selection</h3>" in text
    assert "<h3>tft/attention</h3>" in text
    assert "counted from the last bar" in text
    assert INTERNALS_NOTE not in render_report(asked)


def test_internals_of_a_symbol_that_has_none_are_left_out() -> None:
    missing = Internal(name="past selection", axis=InternalAxis.INPUTS, labels=("ret_1",), values=np.array([[np.nan]]))
    asked = content()

    text = render_report(replace(asked, attributions=(replace(asked.attributions[0], internals=(missing,)),)))

    assert "past selection" not in text


def test_the_audit_next_to_the_model_is_shown() -> None:
    page = page_of(render_report(replace(content(), audit=audit_record(note=HOSTILE))))

    for check in audit_record().checks:
        assert check.sentence in page.text
    assert "What it proves, and what it does not" in page.text
    assert HOSTILE in page.text
    assert "Not audited" not in page.text


def test_a_page_without_an_audit_tells_how_to_have_one_on_it() -> None:
    page = page_of(render_report(content()))
    assert "Not audited: it has not been checked whether the skill is only a leak" in page.words
    assert "quantra audit models/canned/1 --bars bars.csv quantra report models/canned/1 --bars bars.csv" in page.words


def test_a_settings_search_is_shown() -> None:
    page = page_of(render_report(content()))

    assert "40, of which 21 were pruned and 1 failed" in page.words
    assert "0.38040 ± 0.00170" in page.words


def test_the_initial_weights_of_a_model_are_reported() -> None:
    one: dict[str, Json] = {
        "weights_hash": "ab" * 32,
        "symbols": ["IBM"],
        "seen_from": 20010102,
        "seen_until": 20091231,
    }
    told = f"{'ab' * 8}</code></th><td>2001-01-02 to 2009-12-31</td><td>IBM"
    assert told in render_report(content(full_card() | {"ancestors": [one]}))
    assert "Weights that it started from" not in render_report(content())


def test_a_symbol_that_was_not_forecast_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"no symbol 'IBM'; it has \['AAPL'\]"):
        render_report(replace(content(), symbols=("IBM",)))


def test_a_symbol_without_a_forecast_is_refused_with_the_reason() -> None:
    asked = content()
    broken = replace(asked, forecast=replace(asked.forecast, values=asked.forecast.values * np.nan))

    with pytest.raises(ConfigurationError, match="AAPL has no forecast to report: nothing is real"):
        render_report(broken)


def test_a_symbol_without_a_forecast_is_refused_without_the_warnings_of_others() -> None:
    asked = content()
    refusal = InvalidInputError("AAPL: have 5 bars")
    broken = replace(asked.forecast, values=asked.forecast.values * np.nan, refusals={"AAPL": refusal})

    with pytest.raises(ConfigurationError, match=r"AAPL has no forecast to report: AAPL: have 5 bars$"):
        render_report(replace(asked, forecast=broken))


def test_a_damaged_card_is_refused_by_its_key() -> None:
    with pytest.raises(ArtifactError, match=r"card: skill\.lower is \"low\", expected a number"):
        render_report(content(full_card() | {"skill": {**_skill(), "lower": "low"}}))


def _skill() -> dict[str, Json]:
    skill = full_card()["skill"]
    assert isinstance(skill, dict)
    return skill


def test_the_report_is_written_whole_and_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    write_report(path, content())

    assert path.read_text("utf-8") == render_report(content())
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("package", ["plotly", "jinja2"])
def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(MissingPackageError, match=rf"{package}: pip install 'quantra\[report\]'"):
        render_report(content())


def test_a_report_that_could_not_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    check_report(tmp_path / "report.html")
    with pytest.raises(ConfigurationError, match=r"folder .*missing for report.html does not exist"):
        check_report(tmp_path / "missing" / "report.html")
    with pytest.raises(ConfigurationError, match="is a folder; pass the path of a file"):
        check_report(tmp_path)


# --- chart content


def test_the_names_in_a_chart_are_explained_beside_it_from_their_own_definitions() -> None:
    asked = content()
    feature = FeatureInfo(name="ret_1", expression="Log($close)", meaning="made up for this test", unit="furlongs")
    bare = FeatureInfo(name="vol_20", expression="Std($close, 20)", meaning="", unit="1")
    info = replace(asked.info, observed_features=(feature, bare))

    page = page_of(render_report(replace(asked, info=info)))

    assert "ret_1Made up for this test (furlongs)" in page.text
    assert "vol_20Std($close, 20)" in page.text
    assert "scaleThe window's volatility" in page.text


def test_every_kind_of_row_that_is_no_feature_has_a_meaning() -> None:
    features = {RowKind.OBSERVED, RowKind.KNOWN, RowKind.STATIC}
    assert set(ROW_MEANINGS) == set(RowKind) - features


def test_of_several_symbols_only_the_median_is_told_in_detail() -> None:
    asked = content()
    two = ("AAPL", "GOOG")
    reasons = replace(canned_service.attribution(two), cells=np.ones((2, 4, 2)))
    several = replace(
        asked,
        bars=bokeh_panel(*two).last(300),
        forecast=replace(canned_service.forecast(two), values=np.ones((2, 2, 3)), returns=np.ones((2, 2, 3))),
        attributions=(reasons, replace(reasons, quantile=0.9)),
        symbols=two,
    )

    assert render_report(several).count("When it mattered") == 2
    assert render_report(asked).count("When it mattered") == 2


def test_of_many_symbols_only_the_median_is_explained() -> None:
    panel, asked = bokeh_panel().last(300), content()
    many = panel.symbols
    reasons = canned_service.attribution(many)
    values = np.ones((5, 2, 3))
    several = replace(
        asked,
        bars=panel,
        forecast=replace(canned_service.forecast(many), values=values, returns=values),
        attributions=(reasons, replace(reasons, quantile=0.9)),
        symbols=many,
    )

    assert "5 sessions, 90 %" not in render_report(several)
    assert "5 sessions, 90 %" in render_report(asked)


def test_texts_that_figures_share_stand_once_and_numbers_have_the_digits_of_a_drawing() -> None:
    figures, days = PageFigures(), ["2013-03-01", "2013-03-04"]
    drawn = Figure([Scatter(x=days, y=np.array([1 / 3, 2])), Scatter(x=days, y=np.array([4.0, 5])), Scatter(x=[1, 2])])

    added = figures.add(drawn.update_layout(height=300))

    traces = json.loads(added.content)["data"]
    assert (added.name, added.height) == ("chart-1", 300)
    assert [trace["x"] for trace in traces] == [0, 0, [1, 2]]
    assert json.loads(figures.common())["shared"] == [days]
    numbers = np.frombuffer(base64.b64decode(traces[0]["y"]["bdata"]), traces[0]["y"]["dtype"])
    assert numbers.tolist() == [np.float32(1 / 3), 2]


def test_what_others_wrote_does_not_end_the_script_that_holds_a_figure() -> None:
    hostile = Figure([Scatter(x=["a"], y=[1], name=f"</script>{HOSTILE}&\u2028")], {"height": 300})

    text = PageFigures().add(hostile).content

    assert not set("<>&\u2028") & set(text)
    assert json.loads(text)["data"][0]["name"] == f"</script>{HOSTILE}&\u2028"


def test_the_script_of_pages_is_the_published_bundle_of_the_plotly_that_is_installed() -> None:
    folder = files("predictor.report").joinpath("plotly")
    script = folder.joinpath("plotly-finance.min.js").read_bytes()

    assert base64.b64encode(hashlib.sha512(script).digest()).decode() == PUBLISHED
    version = re.search(rb"plotly\.js \(finance - minified\) v(\d+)\.", script)
    assert version is not None
    assert version[1].decode() == get_plotlyjs_version().partition(".")[0]
    assert b"Licensed under the MIT license" in script[:200]
    assert "MIT License" in folder.joinpath("LICENSE").read_text("utf-8")


def test_a_page_without_charts_has_no_script() -> None:
    page = PageBuilder("predictor.report", "base.html.j2").render({})

    assert "script" not in page_of(page).tags
    assert len(page) < 20_000
