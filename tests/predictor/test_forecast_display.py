"""Display of forecasts: percentages are simple returns, and every forecast carries its skill."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import canned_service
import numpy as np
import pytest
from artifacts import NO_SKILL, recent_bars, save_artifact, save_small_artifact, small_artifact, with_skill
from pages import page_of
from plotly.graph_objects import Figure
from rich.console import Console
from serving import serving

from predictor._pb import prediction_pb2 as pb
from predictor.bars import BarPanel
from predictor.cli import app, run
from predictor.cli.output import make_contributions_table, make_forecast_table
from predictor.client import QuantraClient
from predictor.dates import to_optional_date_number
from predictor.embed import open_embedded_server
from predictor.errors import BarsError
from predictor.forecast import Forecast, convert_to_simple_return
from predictor.forecaster import Forecaster
from predictor.instance import Instance
from predictor.networks import Target, TargetKind
from predictor.report import ReportContent, draw_forecast, render_report
from predictor.service import PredictionService
from predictor.skill import Skill
from predictor.wire import forecasts, instances

if TYPE_CHECKING:
    from predictor.forecast import Attribution

Capture = pytest.CaptureFixture[str]
UNKNOWN = "skill: unknown, the model's card has no baseline"
NEXT_CLOSE = "the close of 2013-03-04, 1 session after the last bar"


def forecast() -> Forecast:
    """A close of 430.47, and a median of 495.04 in five sessions."""
    values = np.log(np.array([[[0.98, 1.001, 1.02], [0.9, 495.04 / 430.47, 1.3]]]))
    anchor = np.array([430.47])
    prices = anchor[:, None, None] * np.exp(values)
    return replace(canned_service.forecast(("AAPL",)), values=values, returns=values, prices=prices, skill=NO_SKILL)


def delayed() -> Forecast:
    """The forecast from the close after the next session."""
    return replace(forecast(), prices=None, lag=1, base_session=date(2013, 3, 4))


def printed_table(*parts: object, width: int = 100) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(*parts)
    return captured.get()


def content(shown: Forecast) -> ReportContent:
    return ReportContent(
        info=canned_service.model_info(), bars=recent_bars("AAPL"), forecast=shown, attributions=(), symbols=("AAPL",)
    )


def page_text(shown: Forecast) -> str:
    return page_of(render_report(content(shown))).words.replace("\N{NO-BREAK SPACE}", " ")


def html_text(shown: Forecast) -> str:
    return page_of(shown._repr_html_()).words


def table_text(shown: Forecast) -> str:
    return printed_table(make_forecast_table(shown, "AAPL", "USD"))


SHOWN: dict[str, Callable[[Forecast], str]] = {"table": table_text, "report": page_text, "notebook": html_text}


@pytest.mark.parametrize("where", SHOWN)
def test_a_per_cent_is_the_return_that_the_prices_show(where: str) -> None:
    text = SHOWN[where](forecast())

    assert convert_to_simple_return(np.log(495.04 / 430.47)) == pytest.approx(0.15, abs=1e-5)
    assert "495.04" in text
    assert "+15.00 %" in text
    assert "13.98" not in text


@pytest.mark.parametrize("where", SHOWN)
def test_returns_without_prices_are_simple_returns_too(where: str) -> None:
    text = SHOWN[where](delayed())

    assert "+15.00 %" in text
    assert "495.04" not in text
    assert "13.98" not in text


@pytest.mark.parametrize("where", SHOWN)
def test_what_is_no_return_has_no_per_cent_of_it(where: str) -> None:
    values = np.full((1, 2, 3), -4.1234)
    volatility = replace(forecast(), target_kind="log-volatility", values=values, returns=None, prices=None)

    text = SHOWN[where](volatility).replace("\N{MINUS SIGN}", "-")

    assert "-4.1234" in text
    assert "-98" not in text


def test_the_numbers_for_programs_stay_log_returns() -> None:
    shown = forecast()

    assert shown.table()[4].value == np.log(495.04 / 430.47)
    assert shown.to_numpy() is shown.values


def test_a_chart_of_a_symbol_without_bars_is_refused_by_its_name() -> None:
    with pytest.raises(BarsError, match="no bars of NONE"):
        draw_forecast(recent_bars("AAPL"), forecast(), "NONE")


def own_chart(shown: Forecast) -> Figure:
    return shown.plot()


def chart_of_bars(shown: Forecast) -> Figure:
    return draw_forecast(recent_bars("AAPL"), shown, "AAPL")


def layout_text(figure: Figure) -> str:
    layout = cast("Any", figure).layout
    return " ".join(str(part.text) for part in (layout.title, layout.title.subtitle, layout.yaxis.title))


@pytest.mark.parametrize("draw", [own_chart, chart_of_bars])
def test_a_chart_without_prices_has_simple_returns_in_per_cent_and_names_the_close_they_count_from(
    draw: Callable[[Forecast], Figure],
) -> None:
    figure = draw(delayed())

    drawn = {round(float(y), 6) for trace in cast("Any", figure).data for y in trace.y}
    assert drawn == {-2, 0.1, 2, -10, round(100 * (495.04 / 430.47 - 1), 6), 30}
    assert "return (%)" in layout_text(figure)
    assert f"Returns count from {NEXT_CLOSE}." in layout_text(figure)


@pytest.mark.parametrize("draw", [own_chart, chart_of_bars])
def test_a_price_chart_shows_the_skill_and_names_no_other_close(draw: Callable[[Forecast], Figure]) -> None:
    text = layout_text(draw(forecast()))

    assert NO_SKILL.line in text
    assert "price" in text
    assert "count from" not in text


def test_contributions_in_basis_points_are_called_those_of_log_returns() -> None:
    found = canned_service.attribution(("AAPL",))

    text = printed_table(make_contributions_table(found, "AAPL"))

    assert f"{10_000 * found.per_row[0, 2]:+.2f}" in text
    assert "bp of log return" in text
    page = page_of(render_report(replace(content(forecast()), attributions=(found,)))).words
    assert "Contribution (basis points of log return)" in page


def test_contributions_to_a_log_of_volatility_have_digits_enough() -> None:
    found = replace(canned_service.attribution(("AAPL",)), unit="log daily volatility", prediction=np.array([-4.24671]))

    assert "-4.2467 log daily volatility" in printed_table(make_contributions_table(found, "AAPL"))


def test_no_name_of_an_input_is_cut_in_a_narrow_terminal() -> None:
    names = ("from_month_start", "return_on_money_in_20", "close_to_range_20")
    found = replace(canned_service.attribution(("AAPL",)), row_names=names, per_row=np.array([[0.1, -0.2, 0.3]]))

    text = printed_table(make_contributions_table(found, "AAPL"), width=80)

    assert all(name in text for name in names)


def test_inputs_that_added_nothing_are_one_line() -> None:
    found = replace(
        canned_service.attribution(("AAPL",)), row_names=("a", "b", "c"), per_row=np.array([[0.0, -0.2, 0.0]])
    )

    text = printed_table(make_contributions_table(found, "AAPL"), width=80)

    assert [line.split()[0] for line in text.splitlines()[5:7]] == ["b", "others"]
    assert "others (2)" in text


def test_a_title_is_not_folded_to_the_width_of_a_narrow_table(models: Path, capsys: Capture) -> None:
    bars = ("--bars", models / "bars.csv", "--symbol", "AAPL", "--horizon", "5", "--quantile", "0.5")

    text = output_of(capsys, "predict", "--artifact", models / "told" / "1", *bars)

    assert text.startswith("AAPL, as of 2013-03-01, last close 430.47 (told@1)\n")
    assert "band" not in text


# --- a lag, at its source and at every interface


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`told`, with skill in its card, and `delayed`, of lag 1, without."""
    folder = tmp_path_factory.mktemp("models")
    save_artifact(folder / "told" / "1", with_skill(small_artifact(), NO_SKILL))
    save_small_artifact(folder / "delayed" / "1", target=Target(lag=1))
    save_small_artifact(folder / "volatility" / "1", target=Target(kind=TargetKind.LOG_VOLATILITY, lag=1))
    recent_bars("AAPL", "GOOG", "MSFT").write_csv(folder / "bars.csv")
    return folder


@dataclass(frozen=True)
class Interfaces:
    """The same models at every interface."""

    models: Path
    target: str

    def answers(self, model: str, capsys: Capture) -> dict[str, dict[str, Any]]:
        """Base, prices and skill of a forecast, by interface."""
        bars = recent_bars("AAPL")
        with Forecaster.load(self.models / model / "1") as forecaster:
            near = forecaster.predict(bars)
        with QuantraClient(self.target, model) as client:
            far = client.predict(bars)
        asked = ("predict", "--server", self.target, "--model", model, "--bars", self.models / "bars.csv", "--json")
        return {
            "forecaster": plain(near),
            "client": plain(far),
            "json": json.loads(output_of(capsys, *asked)),
            "embedded": embedded(self.models, model, bars),
        }


def plain(one: Forecast) -> dict[str, Any]:
    return {
        "base_session": to_optional_date_number(one.base_session),
        "lag": one.lag,
        "prices": one.prices,
        "skill": None if one.skill is None else skill_fields(one.skill),
    }


def skill_fields(skill: Skill) -> dict[str, Any]:
    return {
        "rival": skill.rival,
        "improvement": skill.improvement,
        "lower": skill.lower,
        "upper": skill.upper,
        "level": skill.level,
        "sentence": skill.sentence,
        "days_short": skill.days_short,
        "verdict": skill.verdict.value,
        "line": skill.line,
    }


def embedded(models: Path, model: str, bars: BarPanel) -> dict[str, Any]:
    """Call the embedded server with serialised requests."""
    request = pb.PredictRequest(model=model, instances=[instances.encode(Instance(input=bars))])
    door, _ = open_embedded_server(str(models), "cpu", 256, 1)
    assert door is not None
    answer, error = door.call("Predict", request.SerializeToString(), 30).answer()
    door.close()
    assert error == b""
    return plain(forecasts.decode(pb.PredictResponse.FromString(answer).results[0].forecast))


def output_of(capsys: Capture, *arguments: object, code: int = 0) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        run(app, [str(argument) for argument in arguments])
    told = capsys.readouterr()
    assert (ended.value.code or 0) == code, told.err
    return told.out


@pytest.fixture(scope="module")
def doors(models: Path) -> Iterator[Interfaces]:
    with PredictionService.open(models) as service, serving(service) as served:
        yield Interfaces(models=models, target=served.target)


def test_the_base_session_of_returns_is_the_same_at_every_interface(doors: Interfaces, capsys: Capture) -> None:
    late, soon = doors.answers("delayed", capsys), doors.answers("told", capsys)

    assert {door: (one["base_session"], one["lag"]) for door, one in late.items()} == dict.fromkeys(late, (20130304, 1))
    assert {door: (one["base_session"], one["lag"]) for door, one in soon.items()} == dict.fromkeys(soon, (20130301, 0))
    assert all(one["prices"] is None for one in late.values())
    assert all(one["prices"] is not None for one in soon.values())


def test_the_skill_is_the_same_at_every_interface(doors: Interfaces, capsys: Capture) -> None:
    told, unknown = doors.answers("told", capsys), doors.answers("delayed", capsys)

    assert {door: one["skill"] for door, one in told.items()} == dict.fromkeys(told, skill_fields(NO_SKILL))
    assert {door: one["skill"] for door, one in unknown.items()} == dict.fromkeys(unknown, None)


def test_the_skill_is_shown_with_an_explanation_too(doors: Interfaces, capsys: Capture) -> None:
    bars = ("--bars", doors.models / "bars.csv", "--symbol", "AAPL")
    asked = ("explain", "--server", doors.target, "--model", "told", *bars)
    with QuantraClient(doors.target, "told") as client:
        found = client.feature_importance(recent_bars("AAPL"))

    assert found.skill == NO_SKILL
    assert json.loads(output_of(capsys, *asked, "--json"))["attributions"][0]["skill"] == skill_fields(NO_SKILL)
    assert NO_SKILL.line in " ".join(output_of(capsys, *asked).split())


def test_the_session_of_a_window_without_a_date_is_unknown_and_the_words_hold_no_date() -> None:
    assert replace(delayed(), base_session=None).counted_from == "the close 1 session after the last bar"
    assert delayed().counted_from == NEXT_CLOSE
    assert replace(delayed(), returns=None).counted_from == "the session of 2013-03-04, 1 session after the last bar"
    assert forecast().counted_from == "the last close"


def test_the_base_session_follows_the_exchange_and_not_the_weekday(models: Path) -> None:
    good_friday_ahead = recent_bars("AAPL").until(20121224)
    with Forecaster.load(models / "delayed" / "1") as forecaster:
        found = forecaster.predict(good_friday_ahead)

    assert (found.as_of_session, found.base_session) == (date(2012, 12, 24), date(2012, 12, 26))


def test_an_older_servers_forecast_has_no_base_session() -> None:
    message = pb.Forecast.FromString(forecasts.encode(delayed()))
    message.ClearField("base_session")

    assert forecasts.decode(message).base_session is None


@pytest.mark.parametrize(("model", "line"), [("told", NO_SKILL.line), ("delayed", UNKNOWN), ("volatility", UNKNOWN)])
def test_the_command_line_ends_with_the_skill(doors: Interfaces, model: str, line: str, capsys: Capture) -> None:
    bars = ("--bars", doors.models / "bars.csv", "--symbol", "AAPL")

    text = output_of(capsys, "predict", "--artifact", doors.models / model / "1", *bars)

    assert " ".join(text.partition("\nNext: ")[0].split()).endswith(line)
    assert ("Returns count from" in text) == (model == "delayed")
    assert ("Horizons count from" in text) == (model == "volatility")
    assert ("Values are logs of the daily volatility." in text) == (model == "volatility")


@pytest.mark.parametrize(("skill", "line"), [(NO_SKILL, NO_SKILL.line), (None, UNKNOWN)])
def test_a_notebook_shows_the_skill_below_forecast_and_reasons(skill: Skill | None, line: str) -> None:
    shown: tuple[Forecast | Attribution, ...] = (
        replace(forecast(), skill=skill),
        replace(canned_service.attribution(("AAPL",)), skill=skill),
    )

    for one in shown:
        assert page_of(one._repr_html_()).words.endswith(line)


def test_the_chart_of_reasons_says_whose_they_are_and_what_the_model_is_worth() -> None:
    found = replace(canned_service.attribution(("AAPL", "MSFT")), skill=NO_SKILL)

    text = layout_text(found.plot("MSFT"))

    assert "MSFT, 5 sessions ahead, q0.5" in text
    assert NO_SKILL.line in text


def test_the_line_of_a_skill_says_what_its_numbers_are_of() -> None:
    assert NO_SKILL.line == (
        "skill: not shown, improvement -0.4 % (90 %: -2.3 to +1.0 %) on held-out days against GARCH(1,1)-t, calibrated"
    )


# --- several symbols


def bars_of(models: Path, *flags: str) -> tuple[object, ...]:
    return ("--artifact", models / "told" / "1", "--bars", models / "bars.csv", *flags)


@pytest.mark.parametrize("flags", [("--symbol", "MSFT", "--symbol", "AAPL"), ("--symbol", "MSFT,AAPL")])
def test_several_symbols_are_forecast_and_explained_in_the_order_asked(
    models: Path, flags: tuple[str, ...], capsys: Capture
) -> None:
    asked = bars_of(models, *flags)
    with Forecaster.load(models / "told" / "1") as forecaster:
        expected = forecaster.predict(recent_bars("AAPL", "GOOG", "MSFT").select(["MSFT", "AAPL"]))

    found = json.loads(output_of(capsys, "predict", *asked, "--json"))
    reasons = json.loads(output_of(capsys, "explain", *asked, "--json"))["attributions"][0]
    text = output_of(capsys, "predict", *asked)

    assert (found["symbols"], reasons["symbols"]) == (["MSFT", "AAPL"], ["MSFT", "AAPL"])
    assert found["values"] == expected.values.tolist()
    assert text.index("MSFT, as of") < text.index("AAPL, as of")
    assert "GOOG" not in text


@pytest.mark.parametrize("command", ["predict", "explain"])
def test_a_chart_of_several_symbols_is_one_page_with_a_chart_of_each(
    models: Path, tmp_path: Path, command: str, capsys: Capture
) -> None:
    chart = tmp_path / "chart.html"

    output_of(capsys, command, *bars_of(models, "--symbol", "AAPL,GOOG", "--plot", str(chart)))

    text = chart.read_text("utf-8")
    assert text.count('class="plotly-graph-div"') == 2
    assert 'id="chart-1"' in text
    assert 'id="chart-2"' in text
    assert "<script src=" not in text


def test_a_report_of_several_symbols_has_a_section_of_each(models: Path, tmp_path: Path, capsys: Capture) -> None:
    page = tmp_path / "page.html"
    told = models / "told" / "1"

    found = json.loads(
        output_of(
            capsys, "report", told, "--bars", models / "bars.csv", "--symbol", "MSFT,AAPL", "--output", page, "--json"
        )
    )

    assert (found["symbol"], found["symbols"]) == ("MSFT", ["MSFT", "AAPL"])
    text = page.read_text("utf-8")
    words = page_of(text).words
    assert "MSFT, AAPL: forecast as of 2013-03-01" in words
    headings = ("MSFT: forecast", "MSFT: what moved", "AAPL: forecast The last 60 sessions", "AAPL: what moved")
    places = [words.index(heading) for heading in headings]
    assert places == sorted(places)
    assert "--symbol MSFT,AAPL" in words
    picks = [part.split('"')[0] for part in text.split('type="radio" name="')[1:]]
    ids = [part.split('"')[0] for part in text.split(' id="pick-')[1:]]
    assert (picks.count("pick"), picks.count("pick-2")) == (12, 12)
    assert ids == [str(number) for number in range(1, 25)]
    with Forecaster.load(told) as forecaster:
        expected = forecaster.predict(recent_bars("AAPL", "GOOG", "MSFT").select(["MSFT", "AAPL"]))
    assert expected.prices is not None
    assert set(expected.prices.ravel().tolist()) <= set(page_of(text).numbers)


@pytest.mark.parametrize("command", ["predict", "explain", "report"])
@pytest.mark.parametrize(
    ("flags", "code", "problem"),
    [
        (("--symbol", "AAPL", "--symbol", "AAPL"), 2, "--symbol AAPL appears twice; name it once"),
        (("--symbol", "AAPL,"), 2, "--symbol holds an empty name"),
        (("--symbol", "AAPL,MFST"), 1, "no bars of MFST; the panel has AAPL, GOOG, MSFT"),
    ],
)
def test_a_missing_or_duplicate_symbol_is_an_error(
    models: Path, command: str, flags: tuple[str, ...], code: int, problem: str, capsys: Capture
) -> None:
    folder = (models / "told" / "1",) if command == "report" else ("--artifact", models / "told" / "1")

    told = json.loads(output_of(capsys, command, *folder, "--bars", models / "bars.csv", *flags, "--json", code=code))

    assert problem in told["error"]["message"]


# --- symbols without a forecast, and the baseline of an explanation


def young_beside_old(folder: Path) -> Path:
    """A file in which GOOG has only two bars."""
    panel = recent_bars("AAPL", "GOOG")
    columns = {name: getattr(panel, name).copy() for name in ("open", "high", "low", "close", "volume", "adj_close")}
    for column in columns.values():
        column[1, :-2] = np.nan
    replace(panel, **columns).write_csv(folder / "young.csv")
    return folder / "young.csv"


@pytest.mark.parametrize("command", ["predict", "explain"])
def test_a_symbol_without_a_forecast_has_its_reason_and_neither_table_nor_chart(
    command: str, models: Path, tmp_path: Path, capsys: Capture
) -> None:
    bars, chart = young_beside_old(tmp_path), tmp_path / "chart.html"

    text = output_of(capsys, command, "--artifact", models / "told" / "1", "--bars", bars, "--plot", chart)

    assert [line[:5] for line in text.splitlines() if line.startswith(("AAPL", "GOOG"))] == [
        "AAPL," if command == "predict" else "AAPL:"
    ]
    assert "nan" not in text
    assert "no forecast of GOOG: have 2 bars" in " ".join(text.split())
    page = chart.read_text("utf-8")
    assert ('id="chart-1"' in page, 'id="chart-2"' in page) == (True, False)


def test_an_explanation_of_a_delayed_model_says_what_it_counts_from(models: Path, capsys: Capture) -> None:
    bars = ("--bars", models / "bars.csv", "--symbol", "AAPL")

    delayed = output_of(capsys, "explain", "--artifact", models / "delayed" / "1", *bars)
    plain = output_of(capsys, "explain", "--artifact", models / "told" / "1", *bars)

    assert "Horizons count from 1 session after the last bar." in delayed
    assert "Horizons count" not in plain


def test_pictures_of_forecast_and_reasons_say_whose_they_are_and_what_the_model_is_worth() -> None:
    reasons = replace(canned_service.attribution(("AAPL", "MSFT")), skill=NO_SKILL)
    for shown, title in ((delayed(), "AAPL: "), (reasons, "AAPL, 5 sessions ahead, q0.5")):
        text = shown.to_svg().decode()
        assert title in text
        assert "skill: not shown" in text
        assert shown.to_png("AAPL").startswith(b"\x89PNG")
    assert "MSFT, 5 sessions ahead, q0.5" in reasons.to_svg("MSFT").decode()
