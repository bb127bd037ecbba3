"""Command line: the numbers of the Python API, and one-line errors."""

import base64
import hashlib
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import typer
from artifacts import constant_artifact, recent_bars, save_artifact, save_small_artifact, small_artifact, small_models
from audits import audit_record
from cards import SENTENCE, full_card
from market import without_last_bar
from pages import page_of
from serving import serving
from watched_logs import SUITE

from predictor import canonical, golden
from predictor.artifact import load, save
from predictor.audit_record import AuditRecord, write_audit
from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.catalog import ModelInfo
from predictor.cli import app, run
from predictor.dates import to_date_number
from predictor.errors import format_date
from predictor.forecast import Attribution, Forecast
from predictor.forecaster import Forecaster
from predictor.internals import describe_session
from predictor.registry import GateResult, promote_version, set_alias
from predictor.service import PredictionService

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def artifact(models: Path) -> Path:
    return models / "small" / "1"


@pytest.fixture(scope="module")
def bars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bars") / "bars.csv"
    recent_bars("AAPL", "GOOG").write_csv(path)
    return path


@dataclass(frozen=True)
class ExpectedResults:
    """Results of the Python API for the bars."""

    both: Forecast
    aapl: Forecast
    reasons: Attribution
    """AAPL, 20 sessions, 10 %."""
    info: ModelInfo


@pytest.fixture(scope="module")
def answers(artifact: Path, bars: Path) -> ExpectedResults:
    panel = BarPanel.read(bars)
    aapl = panel.select(["AAPL"])
    with Forecaster.load(artifact) as forecaster:
        return ExpectedResults(
            both=forecaster.predict(panel),
            aapl=forecaster.predict(aapl),
            reasons=forecaster.feature_importance(aapl, horizon=20, quantile=0.1),
            info=forecaster.model(),
        )


def exit_code(*arguments: object) -> int:
    """Run a command and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        run(app, [str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def output_of(capsys: Capture, *arguments: object) -> str:
    """Standard output of a successful command."""
    capsys.readouterr()
    assert exit_code(*arguments) == 0
    return capsys.readouterr().out


def json_of(capsys: Capture, *arguments: object) -> Any:
    return json.loads(output_of(capsys, *arguments, "--json"))


def test_predict_gives_the_numbers_of_the_python_api(
    artifact: Path, bars: Path, answers: ExpectedResults, capsys: Capture
) -> None:
    found = json_of(capsys, "predict", "--artifact", artifact, "--bars", bars, "--symbol", "AAPL")

    expected = answers.aapl
    assert expected.prices is not None
    assert found["symbols"] == ["AAPL"]
    assert found["values"] == expected.values.tolist()
    assert found["prices"] == expected.prices.tolist()
    assert found["target_sessions"] == [to_date_number(day) for day in expected.target_sessions]
    assert found["forecast_id"] == expected.forecast_id


def test_predict_shows_one_horizon_and_quantile(
    artifact: Path, bars: Path, answers: ExpectedResults, capsys: Capture
) -> None:
    asked = ("predict", "--artifact", artifact, "--bars", bars, "--symbol", "AAPL")

    part = json_of(capsys, *asked, "--horizon", 10, "--quantile", 0.9)

    expected = answers.aapl
    assert expected.prices is not None
    assert (part["horizons"], part["quantiles"]) == ([10], [0.9])
    assert part["target_sessions"] == [to_date_number(day) for day in expected.target_sessions[2:3]]
    assert part["prices"] == [[[expected.prices[0, 2, 2]]]]


def test_predict_prints_prices_and_writes_the_chart(
    artifact: Path, bars: Path, answers: ExpectedResults, tmp_path: Path, capsys: Capture
) -> None:
    chart = tmp_path / "chart.html"

    text = output_of(capsys, "predict", "--artifact", artifact, "--bars", bars, "--plot", chart)

    assert answers.both.prices is not None
    assert all(f"{price:,.2f}" in text for price in answers.both.prices.ravel())
    assert "…" not in text
    assert "AAPL, as of 2013-03-01, last close 430.47" in text
    assert is_one_file(chart)


def figures_of(chart: Path) -> list[list[dict[str, Any]]]:
    """Traces of each figure on a page, with dates written out and arrays decoded."""
    text = chart.read_text("utf-8")
    found = re.search(r'id="common">(.*?)</script>', text)
    assert found is not None
    shared = json.loads(found[1])["shared"]
    figures = [json.loads(one)["data"] for one in re.findall(r'-figure">(.*?)</script>', text)]
    for trace in (trace for figure in figures for trace in figure):
        trace["x"] = shared[trace["x"]]
        if isinstance(trace.get("y"), dict):
            trace["y"] = np.frombuffer(base64.b64decode(trace["y"]["bdata"]), trace["y"]["dtype"]).tolist()
    return figures


def past_of(figure: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Median of each past forecast, by its first day."""
    return {
        trace["x"][0]: trace["y"][1:]
        for trace in figure
        if trace["type"] == "scatter" and trace["xaxis"] == "x" and trace["name"] == "median"
    }


def test_a_chart_shows_what_the_model_forecast_sixty_forty_and_twenty_sessions_ago(
    artifact: Path, bars: Path, tmp_path: Path, capsys: Capture
) -> None:
    chart, panel = tmp_path / "chart.html", BarPanel.read(bars)
    asked = ("predict", "--artifact", artifact, "--bars", bars)

    output_of(capsys, *asked, "--plot", chart)

    days = [format_date(int(panel.sessions[-1 - ago])) for ago in (60, 40, 20)]
    then = {day: json_of(capsys, *asked, "--as-of", day)["prices"] for day in days}
    for s, figure in enumerate(figures_of(chart)):
        expected = {day: [row[1] for row in prices[s]] for day, prices in then.items()}
        assert past_of(figure) == {day: pytest.approx(prices, rel=1e-6) for day, prices in expected.items()}


def test_a_chart_of_one_horizon_has_past_forecasts_of_that_horizon(
    artifact: Path, bars: Path, tmp_path: Path, capsys: Capture
) -> None:
    chart = tmp_path / "chart.html"

    output_of(capsys, "predict", "--artifact", artifact, "--bars", bars, "--horizon", 10, "--plot", chart)

    assert [len(prices) for prices in past_of(figures_of(chart)[0]).values()] == [1, 1, 1]


def test_a_past_forecast_without_enough_bars_is_left_out(artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    chart, few, panel = tmp_path / "chart.html", tmp_path / "few.csv", recent_bars("AAPL")
    panel.last(75).write_csv(few)

    output_of(capsys, "predict", "--artifact", artifact, "--bars", few, "--symbol", "AAPL", "--plot", chart)

    days = [format_date(int(panel.sessions[-1 - ago])) for ago in (40, 20)]
    assert list(past_of(figures_of(chart)[0])) == days
    assert f"as of {', '.join(days)}, from the bars until then" in page_of(chart.read_text("utf-8")).words


def many_bars(path: Path) -> None:
    """Write bars of 21 symbols, all the same."""
    panel = recent_bars("AAPL")
    names = tuple(f"A{k}" for k in range(21))
    columns = {name: np.repeat(getattr(panel, name), 21, axis=0) for name in panel.columns}
    replace(panel, symbols=names, **columns).write_csv(path)


def test_a_chart_of_many_symbols_notes_that_it_has_no_past_forecasts(
    artifact: Path, tmp_path: Path, capsys: Capture
) -> None:
    chart, many = tmp_path / "chart.html", tmp_path / "many.csv"
    many_bars(many)

    output_of(capsys, "predict", "--artifact", artifact, "--bars", many, "--plot", chart)

    assert past_of(figures_of(chart)[0]) == {}
    assert "Past forecasts are only drawn for up to 20 symbols." in page_of(chart.read_text("utf-8")).words


def test_explain_gives_the_numbers_of_the_python_api(
    artifact: Path, bars: Path, answers: ExpectedResults, capsys: Capture
) -> None:
    asked = ("--symbol", "AAPL", "--horizon", 20, "--quantile", 0.1)

    found = json_of(capsys, "explain", "--artifact", artifact, "--bars", bars, *asked)["attributions"][0]

    assert (found["horizon"], found["quantile"]) == (20, 0.1)
    assert found["row_names"] == list(answers.reasons.row_names)
    assert found["per_row"] == answers.reasons.per_row.tolist()


def test_explain_uses_the_given_method_and_names_those_of_the_model(
    artifact: Path, bars: Path, capsys: Capture
) -> None:
    asked = ("explain", "--artifact", artifact, "--bars", bars, "--symbol", "AAPL", "--horizon", 20, "--method")

    found = json_of(capsys, *asked, "shapley")["attributions"][0]

    assert found["method"] == "shapley"
    assert exit_code(*asked, "shap") == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "the model supports ['integrated-gradients', 'shapley', 'occlusion']" in told


def test_explain_prints_the_largest_contribution_first_and_writes_the_chart(
    artifact: Path, bars: Path, answers: ExpectedResults, tmp_path: Path, capsys: Capture
) -> None:
    chart = tmp_path / "chart.html"
    asked = ("--symbol", "AAPL", "--horizon", 20, "--quantile", 0.1, "--plot", chart)

    lines = output_of(capsys, "explain", "--artifact", artifact, "--bars", bars, *asked).splitlines()

    largest = answers.reasons.table()[0]
    first = next(k for k, line in enumerate(lines) if "───" in line) + 1
    assert largest.name in lines[first]
    assert f"{10_000 * largest.value:+.2f}" in lines[first]
    assert is_one_file(chart)


# --- pictures


def test_a_picture_shows_the_forecasts_of_the_page(artifact: Path, bars: Path, tmp_path: Path, capsys: Capture) -> None:
    asked = ("predict", "--artifact", artifact, "--bars", bars)

    output_of(capsys, *asked, "--plot", tmp_path / "chart.svg")
    output_of(capsys, *asked, "--plot", tmp_path / "chart.html")

    page, picture = (page_of((tmp_path / name).read_text("utf-8")).words for name in ("chart.html", "chart.svg"))
    note = re.search(r"Grey: .*?what followed\.", picture)
    assert note is not None
    assert note[0] in page
    for word in ("AAPL: small@1, as of 2013-03-01", "GOOG: small@1", "past forecasts", "skill: unknown"):
        assert word in picture


def test_a_picture_shows_what_moved_the_forecast(
    artifact: Path, bars: Path, answers: ExpectedResults, tmp_path: Path, capsys: Capture
) -> None:
    chart, asked = tmp_path / "why.SVG", ("--symbol", "AAPL", "--horizon", 20, "--quantile", 0.1)

    output_of(capsys, "explain", "--artifact", artifact, "--bars", bars, *asked, "--plot", chart)

    picture = page_of(chart.read_text("utf-8")).words
    assert "AAPL: what moved the forecast; small@1, as of 2013-03-01" in picture
    assert "20 sessions ahead, 10 %" in picture
    assert answers.reasons.table()[0].name in picture


def test_a_picture_of_too_many_symbols_is_refused(artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    many_bars(tmp_path / "many.csv")

    asked = ("predict", "--artifact", artifact, "--bars", tmp_path / "many.csv", "--plot", tmp_path / "chart.png")

    assert exit_code(*asked) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "chart.png would show 21 symbols, but a picture shows at most 20" in told
    assert "write chart.html" in told


def without_packages(name: str) -> None:
    """In place of `importlib.util.find_spec`."""


def test_a_picture_without_its_package_is_refused_before_the_work(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("predictor.report.templates.find_spec", without_packages)

    assert exit_code("predict", "--artifact", "none", "--bars", "none", "--plot", tmp_path / "chart.png") == 1
    assert "pip install 'quantra[plot]'" in " ".join(capsys.readouterr().err.split())


# --- unimproved models


AS_HAR = "the network added nothing to HAR on these data: this model forecasts as `har` does"


def trained_card(kind: str) -> dict[str, Json]:
    """The card of a training run in which no epoch improved on the start; HAR has no epochs."""
    epochs: list[Json] = [] if kind == "har" else [{"epoch": 1, "train": 0.3, "selection": 0.3}]
    training: dict[str, Json] = {"device": "cpu", "precision": "fp32", "parameters": 9, "best_selection": 0.25}
    return full_card() | {
        "recipe": {"kind": kind, "scale": "har"},
        "training": training | {"best_epoch": 0, "epochs": epochs},
    }


@pytest.fixture(scope="module")
def unimproved_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LSTM and HAR models with the same forecast for all windows, in units of volatility."""
    folder = tmp_path_factory.mktemp("kept")
    for kind, made in (("lstm", constant_artifact(fitted=True)), ("har", small_artifact("har"))):
        manifest = replace(made.manifest, card=trained_card(kind))
        save_artifact(folder / kind / "1", replace(made, manifest=manifest))
    return folder


def test_an_explanation_says_that_the_network_added_nothing(
    unimproved_models: Path, bars: Path, tmp_path: Path, capsys: Capture
) -> None:
    chart, asked = (
        tmp_path / "chart.html",
        ("--artifact", unimproved_models / "lstm" / "1", "--bars", bars, "--symbol", "AAPL"),
    )

    text = output_of(capsys, "explain", *asked, "--horizon", 20, "--plot", chart)

    page = page_of(chart.read_text("utf-8")).words
    assert f"warning: {AS_HAR}" in " ".join(text.split())
    assert AS_HAR[1:] in page
    assert "inputs contributed exactly 0" in page
    assert "return_1" not in page


def test_pages_of_a_forecast_say_that_the_network_added_nothing(
    unimproved_models: Path, bars: Path, tmp_path: Path, capsys: Capture
) -> None:
    chart, report = tmp_path / "chart.html", tmp_path / "report.html"

    output_of(capsys, "predict", "--artifact", unimproved_models / "lstm" / "1", "--bars", bars, "--plot", chart)
    output_of(capsys, "report", unimproved_models / "lstm" / "1", "--bars", bars, "--output", report)

    for page in (chart, report):
        assert page.read_text("utf-8").count(AS_HAR[1:]) == 1


def test_har_says_nothing_of_what_it_lacks(
    unimproved_models: Path, bars: Path, tmp_path: Path, capsys: Capture
) -> None:
    pages = [tmp_path / name for name in ("chart.html", "reasons.html", "report.html")]
    asked = ("--artifact", unimproved_models / "har" / "1", "--bars", bars, "--symbol", "AAPL")

    shown = [
        output_of(capsys, "predict", *asked, "--plot", pages[0]),
        output_of(capsys, "explain", *asked, "--plot", pages[1]),
        output_of(capsys, "report", unimproved_models / "har" / "1", "--bars", bars, "--output", pages[2]),
        output_of(capsys, "inspect", unimproved_models / "har" / "1"),
        output_of(capsys, "inspect", unimproved_models / "har" / "1", "--all"),
        *(page_of(page.read_text("utf-8")).words for page in pages),
    ]

    assert [text for text in shown if "network" in text.lower() or "epoch" in text.lower()] == []


# --- ranking models and internals


@pytest.fixture(scope="module")
def special_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ranking model and one with internals."""
    folder = tmp_path_factory.mktemp("others")
    for kind in ("graph", "tft"):
        save_small_artifact(folder / kind / "1", kind)
    return folder


def test_predict_shows_score_and_rank_where_there_are_any(
    special_models: Path, artifact: Path, bars: Path, capsys: Capture
) -> None:
    panel = BarPanel.read(bars)
    with Forecaster.load(special_models / "graph" / "1") as forecaster:
        expected = forecaster.predict(panel)
    assert expected.scores is not None and expected.ranks is not None  # noqa: PT018

    text = output_of(capsys, "predict", "--artifact", special_models / "graph" / "1", "--bars", bars)
    without = output_of(capsys, "predict", "--artifact", artifact, "--bars", bars)

    assert all(f"{score:+.4f}" in text for score in expected.scores.ravel())
    assert ("score" in text, "rank" in text) == (True, True)
    assert ("score" in without, "rank" in without) == (False, False)


def test_predict_gives_the_rank_of_the_horizon_and_symbol_asked_for(
    special_models: Path, bars: Path, capsys: Capture
) -> None:
    asked = ("predict", "--artifact", special_models / "graph" / "1", "--bars", bars)

    whole = json_of(capsys, *asked)
    part = json_of(capsys, *asked, "--symbol", "GOOG", "--horizon", 10)

    assert sorted(row[2] for row in whole["ranks"]) == [1, 2]
    assert part["ranks"] == [[whole["ranks"][1][2]]]
    assert part["scores"] == [[whole["scores"][1][2]]]
    assert part["universe_hash"] == whole["universe_hash"] != ""


def test_a_symbol_without_a_forecast_has_its_reason_and_no_rank(
    special_models: Path, tmp_path: Path, capsys: Capture
) -> None:
    late = tmp_path / "late.csv"
    without_last_bar(recent_bars("AAPL", "GOOG"), "GOOG").write_csv(late)
    asked = (
        "predict",
        "--artifact",
        special_models / "graph" / "1",
        "--bars",
        late,
        "--symbol",
        "GOOG",
        "--horizon",
        5,
    )

    text, found = output_of(capsys, *asked), json_of(capsys, *asked)

    assert "2013-03-08" not in text
    assert "no forecast of GOOG" in text
    assert (found["ranks"], found["scores"]) == ([[0]], [[None]])


def test_a_model_that_does_not_rank_says_so_in_json(artifact: Path, bars: Path, capsys: Capture) -> None:
    found = json_of(capsys, "predict", "--artifact", artifact, "--bars", bars)

    assert (found["scores"], found["ranks"], found["universe_hash"]) == (None, None, "")


def test_explain_shows_the_neighbours_even_where_they_are_small(
    special_models: Path, bars: Path, capsys: Capture
) -> None:
    asked = ("explain", "--artifact", special_models / "graph" / "1", "--bars", bars, "--symbol", "AAPL")

    text, found = output_of(capsys, *asked), json_of(capsys, *asked)["attributions"][0]

    line = next(line for line in text.splitlines() if line.startswith(" neighbours"))
    sizes = np.abs(found["per_row"][0])
    row = found["row_kinds"].index("neighbours")
    assert f"{10_000 * found['per_row'][0][row]:+.2f}" in line
    assert (sizes > sizes[row]).sum() > 15  # the table shows the 15 largest
    assert f"others ({len(sizes) - 16})" in text
    assert "internals" not in text


def test_explain_shows_internals_below_a_heading_that_says_what_they_are(
    special_models: Path, bars: Path, capsys: Capture
) -> None:
    asked = ("explain", "--artifact", special_models / "tft" / "1", "--bars", bars, "--symbol", "AAPL")

    text, found = output_of(capsys, *asked), json_of(capsys, *asked)["attributions"][0]

    contributions, internals = text.split("AAPL: internals, what the network attended to, not what moved the forecast")
    assert [one["name"] for one in found["internals"]] == [
        "selection of past variables",
        "selection of future variables",
        "attention",
    ]
    attention = found["internals"][-1]
    largest = attention["labels"][int(np.argmax(attention["values"][0]))]
    assert f"{describe_session(int(largest))}: " in " ".join(internals.split("attention")[1].split())
    assert "attention" not in contributions


def is_one_file(chart: Path) -> bool:
    text = chart.read_text("utf-8")
    return "Plotly.newPlot" in text and "<script src=" not in text


def test_a_server_answers_as_an_artifact_does(
    models: Path, bars: Path, answers: ExpectedResults, capsys: Capture
) -> None:
    reasons = ("--symbol", "AAPL", "--horizon", 20, "--quantile", 0.1)
    with PredictionService.open(models) as service, serving(service) as served:
        forecast = json_of(capsys, "predict", "--server", served.target, "--model", "small", "--bars", bars)
        why = json_of(capsys, "explain", "--server", served.target, "--bars", bars, *reasons)["attributions"][0]

    assert forecast["values"] == answers.both.values.tolist()
    assert forecast["forecast_id"] == answers.both.forecast_id
    assert why["per_row"] == answers.reasons.per_row.tolist()


def test_a_chart_of_a_servers_forecast_has_no_past_forecasts(
    models: Path, bars: Path, tmp_path: Path, capsys: Capture
) -> None:
    chart = tmp_path / "chart.html"
    with PredictionService.open(models) as service, serving(service) as served:
        asked = ("--server", served.target, "--model", "small", "--bars", bars, "--symbol", "AAPL")
        output_of(capsys, "predict", *asked, "--plot", chart)

    assert past_of(figures_of(chart)[0]) == {}
    assert "Grey" not in page_of(chart.read_text("utf-8")).words


def test_inspect_shows_the_card(artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    stored = load(artifact)
    manifest = replace(stored.artifact.manifest, card=full_card())
    save(tmp_path / "full" / "3", replace(stored.artifact, manifest=manifest), stored.golden)

    text = " ".join(output_of(capsys, "inspect", tmp_path / "full" / "3", "--all").replace("│", " ").split())

    for part in (
        SENTENCE,
        "full@3",
        "bars needed 140",
        "1, 5, 10, 20 sessions",
        "2000-01-03 to 2008-12-31, 8000 windows",
        "GARCH(1,1)-t 40.02 88.10 125.30 178.30",
        "Log($close / Ref($close, 1))",
        "1 session Winkler score 561.00, then 559.00; 86.0 % in the band, then 81.0 %; 700 blocks",
        "trials 40, of which 21 were pruned and 1 failed",
        "0.38040 ± 0.00170 from 3 fresh seeds; 0.37120 in the best trial",
        "not audited: quantra audit",
    ):
        assert part in text


def test_inspect_cuts_no_label_in_a_terminal_of_80_columns(
    artifact: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = load(artifact)
    manifest = replace(stored.artifact.manifest, card=full_card())
    save(tmp_path / "full" / "3", replace(stored.artifact, manifest=manifest), stored.golden)
    monkeypatch.setenv("COLUMNS", "80")
    lines = output_of(capsys, "inspect", tmp_path / "full" / "3").splitlines()
    assert {"forecasts", "calendar", "best", "manifest"} <= {line.split()[0] for line in lines if line.strip()}


def test_inspect_shows_the_audit_next_to_the_artifact(artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "1"
    shutil.copytree(artifact, folder)
    record = audit_record(digest=hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest())
    write_audit(folder, record)

    shown = " ".join(output_of(capsys, "inspect", folder, "--all").split())

    assert "fail trials counted, Sharpe deflated" in shown
    assert "an artifact: fail" in shown
    assert "not audited" not in shown
    told = json_of(capsys, "inspect", folder)["audit"]
    assert AuditRecord.from_bytes(json.dumps(told).encode(), "audit") == record


def test_inspect_refuses_the_audit_of_another_artifact(artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "1"
    shutil.copytree(artifact, folder)
    write_audit(folder, audit_record())

    assert exit_code("inspect", folder) == 1

    assert "1.audit.json: belongs to another artifact" in capsys.readouterr().err


def test_inspect_gives_the_model_as_json(artifact: Path, answers: ExpectedResults, capsys: Capture) -> None:
    info = answers.info

    found = json_of(capsys, "inspect", artifact)

    assert found["bars_needed"] == info.bars_needed
    assert found["weights_hash"] == info.weights_hash
    assert [feature["name"] for feature in found["observed_features"]] == [f.name for f in info.observed_features]
    assert found["card"] == canonical.from_bytes(info.card_json.encode(), "card")
    assert found["audit"] is None


@pytest.mark.parametrize("name", ["weights.safetensors", "features.json", "golden/golden.json"])
def test_inspect_names_the_damaged_file_and_the_cause(
    name: str, artifact: Path, tmp_path: Path, capsys: Capture
) -> None:
    shutil.copytree(artifact, tmp_path / "1")
    with (tmp_path / "1" / name).open("r+b") as file:
        file.write(b"?")

    assert exit_code("inspect", tmp_path / "1") == 1

    error = capsys.readouterr().err
    assert name in error
    assert "SHA-256" in error
    assert len(error.splitlines()) == 1


def test_inspect_runs_the_golden_instance(artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    stored = load(artifact)
    arrays = dict(stored.golden.arrays)
    arrays["stage.values"] = arrays["stage.values"].astype(np.float64) + 0.01
    save(tmp_path / "1", stored.artifact, replace(stored.golden, arrays=arrays))

    assert exit_code("inspect", tmp_path / "1") == 1

    assert "golden instance: stage values is off" in capsys.readouterr().err
    assert golden.TOLERANCES["values"].absolute < 0.01


def test_an_alias_names_a_version(models: Path, tmp_path: Path, capsys: Capture) -> None:
    shutil.copytree(models / "small", tmp_path / "small")

    found = json_of(capsys, "alias", "small", "champion", 1, "--models", tmp_path)

    assert found == {"model": "small", "alias": "champion", "version": 1, "problems": []}
    assert json.loads((tmp_path / "small" / "aliases.json").read_text()) == {"champion": 1}


def test_the_history_shows_each_move_of_an_alias_with_its_reason(models: Path, tmp_path: Path, capsys: Capture) -> None:
    for version in ("1", "2"):  # not the folder's history, which other tests may have begun
        shutil.copytree(models / "small" / "1", tmp_path / "small" / version)
    set_alias(tmp_path / "small", "champion", 1)
    gate = GateResult(name="shadow", passed=False, need="20 sessions", have="none", overridden=True)
    promote_version(tmp_path / "small", 2, expected=1, reason="newer bars", gates=(gate,))

    lines = output_of(capsys, "models", "--history", "--models", tmp_path).splitlines()
    found = json_of(capsys, "models", "--history", "--models", tmp_path)["history"]

    assert lines[0].endswith("small@champion: 1  set: by `quantra alias`")
    assert lines[1].endswith("small@champion: 1 -> 2  promote: newer bars")
    assert lines[2].strip() == "overridden gate shadow: needed 20 sessions, had none"
    assert [(move["model"], move["previous"], move["version"]) for move in found] == [
        ("small", None, 1),
        ("small", 1, 2),
    ]


def test_the_history_of_a_server_is_refused(capsys: Capture) -> None:
    assert exit_code("models", "--history", "--server", "127.0.0.1:1") == 2
    assert "--history reads a folder" in capsys.readouterr().err


LOST = "small/aliases.json: alias 'canary' names version 9, which is missing, so nothing answers to it"


@pytest.mark.parametrize("command", ["alias", "inspect"])
def test_an_alias_that_leads_nowhere_is_a_warning(command: str, models: Path, tmp_path: Path, capsys: Capture) -> None:
    line = Path(shutil.copytree(models / "small", tmp_path / "small"))
    (line / "aliases.json").write_text('{"canary": 9}')
    arguments = ("alias", "small", "champion", 1, "--models", tmp_path) if command == "alias" else (command, line / "1")

    assert exit_code(*arguments, "--json") == 0

    said = capsys.readouterr()
    assert said.err.splitlines() == [LOST]
    assert json.loads(said.out)["problems" if command == "alias" else "alias_problems"] == [LOST]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [(("smal", "champion", 1), "there are ['small']"), (("small", "champion", 7), "has no version 7; it has [1]")],
)
def test_an_alias_of_nothing_is_refused(
    arguments: tuple[object, ...], problem: str, models: Path, capsys: Capture
) -> None:
    assert exit_code("alias", *arguments, "--models", models) == 1

    assert problem in capsys.readouterr().err


def test_doctor_is_content_here_and_runs_the_artifact(artifact: Path, capsys: Capture) -> None:
    found = json_of(capsys, "doctor", "--artifact", artifact)

    checks = {check["name"]: check for check in found["checks"]}
    assert found["ok"] is True
    assert checks["Python"]["detail"] == ".".join(map(str, sys.version_info[:3]))
    assert checks["prediction"]["detail"] == "small@1 gives the recorded numbers"
    assert {"torch", "numpy", "grpcio", "protobuf", "SQLite", "device", "dotnet", "write access", "port"} <= set(checks)


def test_doctor_fails_on_a_damaged_artifact(tmp_path: Path, capsys: Capture) -> None:
    assert exit_code("doctor", "--artifact", tmp_path) == 1

    assert "has no manifest.json, so it is not an artifact; copy the artifact again" in " ".join(
        capsys.readouterr().out.split()
    )


def test_doctor_names_the_extra_of_a_missing_package(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr("predictor.cli.doctor.OPTIONAL", {"no-such-package": "report"})

    checks = {check["name"]: check for check in json_of(capsys, "doctor")["checks"]}

    assert checks["no-such-package"]["remedy"] == "pip install 'quantra[report]'"


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict",),
        ("predict", "--bars", "x.csv"),
        ("predict", "--bars", "x.csv", "--artifact", "a", "--server", "b:1"),
        ("predict", "--bars", "x.csv", "--artifact", "a", "--model", "b"),
        ("predict", "--bars", "x.csv", "--artifact", "a", "--plot", "x.pdf"),
        ("explain", "--bars", "x.csv", "--artifact", "a", "--horizon", "soon"),
        ("serve", "--models", "m", "--listen", "0.0.0.0:50051"),
        ("serve", "--models", "m", "--listen", "nowhere"),
        ("serve", "--models", "m", "--max-batch-rows", "0"),
        ("alias", "a", "b", "c"),
        ("no-such-command",),
    ],
)
def test_bad_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    assert exit_code(*arguments) == 2


@pytest.mark.parametrize(
    ("arguments", "reason", "message"),
    [
        (("predict", "--bars", "x.csv"), "INVALID_INPUT", "give either --artifact DIR or --server HOST:PORT"),
        (("explain", "--bars", "x.csv", "--horizon", "soon"), "INVALID_INPUT", "Invalid value for '--horizon'"),
        (
            ("predict", "--bars", "x.csv", "--artifact", "a", "--plot", "x.pdf"),
            "INVALID_INPUT",
            "end in .html, .png or",
        ),
        (("serve", "--models", "m", "--listen", "nowhere"), "CONFIGURATION_INVALID", "'nowhere' is not HOST:PORT"),
        (("inspect",), "INVALID_INPUT", "Missing argument"),
        (("predict", "--no-such-option"), "INVALID_INPUT", "--no-such-option"),
        (("no-such-command",), "INVALID_INPUT", "no-such-command"),
    ],
)
def test_bad_usage_is_json_too_where_json_is_asked_for(
    arguments: tuple[str, ...], reason: str, message: str, capsys: Capture
) -> None:
    assert exit_code(*arguments, "--json") == 2

    told = capsys.readouterr()
    error = json.loads(told.out)["error"]
    assert (error["status"], error["reason"], error["metadata"]) == ("INVALID_ARGUMENT", reason, {})
    assert message in error["message"]
    assert message.split(maxsplit=1)[0] in told.err


def test_bad_usage_is_no_json_where_nobody_asked_for_it(capsys: Capture) -> None:
    assert exit_code("predict", "--bars", "x.csv") == 2

    assert capsys.readouterr().out == ""


def test_a_file_that_cannot_be_read_is_named_in_words_also_as_json(tmp_path: Path, capsys: Capture) -> None:
    program = typer.Typer()

    @program.command()
    def read(*, as_json: Annotated[bool, typer.Option("--json")] = False) -> None:  # pyright: ignore[reportUnusedFunction]
        assert as_json
        (tmp_path / "nowhere.txt").read_text()

    with pytest.raises(SystemExit) as ended:
        run(program, ["--json"])

    told = capsys.readouterr()
    assert ended.value.code == 1
    assert json.loads(told.out)["error"]["message"] == f"{tmp_path / 'nowhere.txt'}: No such file or directory"
    assert told.err == f"{tmp_path / 'nowhere.txt'}: No such file or directory\n"


def test_a_server_of_several_models_asks_for_a_name(models: Path, tmp_path: Path, capsys: Capture) -> None:
    for name in ("first", "second"):
        shutil.copytree(models / "small", tmp_path / name)
    recent_bars("AAPL").write_csv(tmp_path / "bars.csv")
    with PredictionService.open(tmp_path) as service, serving(service) as served:
        code = exit_code("predict", "--server", served.target, "--bars", tmp_path / "bars.csv", "--json")

    error = json.loads(capsys.readouterr().out)["error"]
    assert (code, error["reason"]) == (1, "MODEL_NOT_FOUND")
    assert error["message"] == (
        "no model is named, and several are served: first, second; name one, such as first (on the command line "
        "--model first)"
    )


@pytest.mark.parametrize("command", ["serve", "predict", "explain", "inspect", "report", "doctor"])
def test_a_command_that_asks_a_model_does_not_offer_the_device_that_it_refuses(command: str, capsys: Capture) -> None:
    text = output_of(capsys, command, "--help")

    assert "cuda:N" in text
    assert "mps" not in text


def test_apples_gpu_is_refused_with_what_to_do(artifact: Path, bars: Path, capsys: Capture) -> None:
    assert exit_code("predict", "--artifact", artifact, "--bars", bars, "--device", "mps") == 1

    assert "has no float64" in capsys.readouterr().err


def test_a_failure_is_one_line_without_a_traceback(artifact: Path, bars: Path, capsys: Capture) -> None:
    assert exit_code("predict", "--artifact", artifact, "--bars", bars, "--horizon", 3) == 1

    captured = capsys.readouterr()
    assert captured.out == ""
    read, failed = captured.err.splitlines()
    assert read.startswith(f"{bars.name} read as plain, ")
    assert failed == "horizon 3 is not forecast; the model has [1, 5, 10, 20]"


def test_a_failure_is_json_too_where_json_is_asked_for(artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    few = tmp_path / "few.csv"
    recent_bars("AAPL").last(29).write_csv(few)

    assert exit_code("predict", "--artifact", artifact, "--bars", few, "--json") == 1

    error = json.loads(capsys.readouterr().out)["error"]
    assert error["reason"] == "TOO_FEW_BARS"
    assert (error["metadata"]["have"], error["metadata"]["need"]) == ("29", "30")


def test_a_gap_is_refused_unless_a_policy_is_given(artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    panel = recent_bars("AAPL")
    path = tmp_path / "gap.csv"
    panel.write_csv(path)
    rows = path.read_text().splitlines()
    path.write_text("\n".join(rows[:150] + rows[151:]) + "\n")

    assert exit_code("predict", "--artifact", artifact, "--bars", path) == 1
    assert "held sessions on" in capsys.readouterr().err
    assert json_of(capsys, "predict", "--artifact", artifact, "--bars", path, "--gaps", "mask")["symbols"] == ["AAPL"]


def test_a_server_that_is_not_there_is_named(bars: Path, capsys: Capture) -> None:
    assert exit_code("predict", "--server", "127.0.0.1:1", "--model", "m", "--bars", bars) == 1

    assert "127.0.0.1:1" in capsys.readouterr().err


def test_escape_codes_in_a_message_do_not_reach_the_terminal(artifact: Path, bars: Path, capsys: Capture) -> None:
    assert exit_code("predict", "--artifact", artifact, "--bars", bars, "--symbol", "\x1b[2J[red]x[/red]") == 1

    error = capsys.readouterr().err
    assert "\x1b" not in error
    assert "[red]x[/red]" in error


@pytest.mark.parametrize("command", ["serve", "predict", "explain", "inspect", "alias", "doctor"])
def test_every_command_helps_with_an_example(command: str, capsys: Capture) -> None:
    text = output_of(capsys, command, "--help")

    assert f"Example: quantra {command}" in text
    assert "--json" in text


def test_help_needs_no_torch() -> None:
    code = "import sys, predictor.cli; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_its_packages_the_command_line_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None; import predictor.cli; predictor.cli.main()"

    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)

    assert ended.returncode == 1
    assert ended.stderr == "the command line needs typer: pip install 'quantra[cli]'\n"


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="stops the server with SIGTERM")
def test_serve_responds_until_it_is_stopped(models: Path, bars: Path, capsys: Capture) -> None:
    command = [sys.executable, "-m", "predictor.cli", "serve", "--models", str(models), "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        ready = json.loads(server.stdout.readline())
        found = json_of(capsys, "predict", "--server", f"127.0.0.1:{ready['port']}", "--bars", bars)
        server.send_signal(signal.SIGTERM)
        _, log = server.communicate()
    SUITE.note(log.splitlines())

    assert ready["ready"] is True
    assert found["symbols"] == ["AAPL", "GOOG"]
    assert server.returncode == 0
    assert {json.loads(line)["level"] for line in log.splitlines()} <= {"INFO", "WARNING"}


def test_a_server_that_cannot_start_exits_with_1(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "predictor")  # restores the level that the command sets
    assert exit_code("serve", "--models", tmp_path / "nothing", "--listen", "127.0.0.1:0") == 1
