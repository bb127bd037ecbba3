"""Data warnings: short, once per request, with a remedy, and without effect on the numbers."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from artifacts import UNIVERSE, recent_bars, save_artifact, small_artifact, small_model
from cards import full_card
from ensembles import artifact_of, ensemble_of, manifest_of
from serving import serving

from predictor import artifact
from predictor.artifact import Artifact
from predictor.bars import BarPanel
from predictor.call_context import NEVER
from predictor.cli import app, run
from predictor.client import QuantraClient
from predictor.forecast import Forecast, TargetPoint
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import ExplanationQuery, Instance
from predictor.model import Model, Predictor
from predictor.model.prepared_instance import MAX_WARNING_LENGTH, MAX_WARNINGS, limit_warnings
from predictor.service import PredictionService

VOLUME = "every volume that the model reads is 0"
UNADJUSTED = "the model was trained on bars with splits and dividends, and these bars record none"
UNSEEN = "not among the symbols that"
RETURNS = (0, 1)
"""Features that read only prices."""


def with_training_record(
    made: Artifact, symbols: Sequence[str] = ("AAPL", "IBM"), adjustment: str = "adj_close"
) -> Artifact:
    """An artifact whose card describes its training data."""
    card = full_card()["data"]
    assert isinstance(card, dict)
    told = {"data": {**card, "symbols": list(symbols), "adjustment": adjustment}}
    return replace(made, manifest=replace(made.manifest, card=told))


@pytest.fixture(scope="module")
def model() -> Model:
    return small_model(with_training_record(small_artifact()))


def forecast(model: Predictor, bars: BarPanel) -> Forecast:
    found = model.predict([Instance(input=bars)], AFTER_ALL_SESSIONS, NEVER)[0]
    assert isinstance(found, Forecast)
    return found


def without_volume(bars: BarPanel, *symbols: str) -> BarPanel:
    """The bars with all volumes of these symbols set to 0."""
    volume = bars.volume.copy()
    volume[[bars.symbols.index(symbol) for symbol in symbols]] = 0.0
    return replace(bars, volume=volume)


def test_bars_like_those_of_the_training_raise_no_doubt(model: Model) -> None:
    assert forecast(model, recent_bars("AAPL", "IBM")).warnings == ()


def test_a_model_with_an_empty_card_gives_no_training_warnings() -> None:
    untold = small_model(small_artifact())
    assert forecast(untold, replace(recent_bars("MSFT"), adj_close=None)).warnings == ()


# --- volumes


def test_volumes_that_are_all_0_are_told_of_the_symbols_that_have_them(model: Model) -> None:
    (warning,) = forecast(model, without_volume(recent_bars("AAPL", "IBM"), "IBM")).warnings
    assert warning.startswith(f"IBM: {VOLUME}")
    assert "give the shares traded" in warning


def test_volumes_before_the_bars_that_are_read_do_not_count(model: Model) -> None:
    bars = without_volume(recent_bars("AAPL"), "AAPL")
    volume = bars.volume.copy()
    volume[0, -model.pipeline.bars_needed] = 1.0
    assert "AAPL: the volume is 0 on up to 99%" in forecast(model, replace(bars, volume=volume)).warnings[0]
    volume[0] = np.roll(volume[0], -1)
    assert VOLUME in forecast(model, replace(bars, volume=volume)).warnings[0]


def test_an_empty_volume_masks_only_the_volume_features(model: Model) -> None:
    bars = recent_bars("AAPL")
    volume = bars.volume.copy()
    volume[0, -1] = np.nan
    features = model.pipeline.features
    mask = features.observed(replace(bars, volume=volume).adjusted())[1][0, -1]
    assert {name for name, known in zip(features.features.names, mask, strict=True) if not known} == {
        "money_1_60",
        "money_5_60",
        "return_money_20",
    }
    assert features.observed(bars.adjusted())[1][0, -1].all()


def test_symbols_with_an_empty_volume_are_named_beside_good_ones(model: Model) -> None:
    bars = recent_bars("AAPL", "IBM")
    volume = bars.volume.copy()
    volume[1, -3:] = np.nan
    (warning,) = forecast(model, replace(bars, volume=volume)).warnings
    assert warning.startswith("IBM: days with an empty volume: 3;")


def test_a_model_that_reads_no_volume_does_not_miss_it() -> None:
    blind = small_model(with_training_record(artifact_of(features=RETURNS)))
    assert forecast(blind, without_volume(recent_bars("AAPL"), "AAPL")).warnings == ()


def test_a_model_without_a_network_reads_no_volume_whatever_its_features() -> None:
    har = small_model(with_training_record(small_artifact("har")))
    assert forecast(har, without_volume(recent_bars("AAPL"), "AAPL")).warnings == ()


# --- adjustment


def test_bars_that_tell_no_adjustment_are_doubted_by_a_model_of_adjusted_ones(model: Model) -> None:
    (warning,) = forecast(model, replace(recent_bars("AAPL", "IBM"), adj_close=None)).warnings
    assert warning.startswith(UNADJUSTED)
    assert "give adj_close, or split_ratio and cash_dividend" in warning


def test_splits_tell_of_adjustments_as_well_as_an_adjusted_close_does(model: Model) -> None:
    bars = recent_bars("AAPL")
    split = replace(bars, adj_close=None, split_ratio=np.ones_like(bars.close))
    assert forecast(model, split).warnings == ()


def test_a_model_of_raw_bars_takes_raw_bars_without_a_word() -> None:
    raw = small_model(with_training_record(small_artifact(), adjustment="none"))
    assert forecast(raw, replace(recent_bars("AAPL"), adj_close=None)).warnings == ()


# --- symbols


def test_a_symbol_that_training_had_not_is_named_and_forecast(model: Model) -> None:
    found = forecast(model, recent_bars("AAPL", "MSFT"))
    (warning,) = found.warnings
    assert warning.startswith("MSFT: not among the symbols that the model was trained on")
    assert "quantra evaluate" in warning
    assert np.isfinite(found.values).all()


def test_a_symbol_without_a_forecast_is_not_doubted_too(model: Model) -> None:
    bars = recent_bars("AAPL", "MSFT")
    columns = {name: getattr(bars, name).copy() for name in ("open", "high", "low", "close", "volume", "adj_close")}
    for column in columns.values():
        column[1, -1] = np.nan
    warnings = forecast(model, replace(bars, **columns)).warnings
    assert [warning.split(":")[0] for warning in warnings] == ["no forecast of MSFT"]


def renamed_copies(count: int, bars: BarPanel, name: str = "NEW{}") -> BarPanel:
    """One stock's bars under many symbols."""
    columns = ("open", "high", "low", "close", "volume")
    return replace(
        bars,
        symbols=tuple(name.format(k) for k in range(count)),
        adj_close=None if bars.adj_close is None else np.tile(bars.adj_close, (count, 1)),
        **{column: np.tile(getattr(bars, column), (count, 1)) for column in columns},
    )


def test_a_list_of_unknown_symbols_is_one_short_warning(model: Model) -> None:
    (warning,) = forecast(model, renamed_copies(500, recent_bars("AAPL"))).warnings
    assert warning.startswith("NEW0, NEW1, NEW2, NEW3, NEW4 and 495 more: not among the symbols")
    assert len(warning) < 250


def test_a_graph_warns_once_that_an_unknown_symbol_has_no_neighbours() -> None:
    graph = small_model(with_training_record(small_artifact("graph"), UNIVERSE))
    bars = replace(recent_bars(*UNIVERSE), symbols=("AAPL", "GOOG", "IBM", "NEW"))
    warnings = forecast(graph, bars).warnings
    assert sum("NEW" in warning for warning in warnings) == 1
    assert not any(UNSEEN in warning for warning in warnings)


def test_doubts_change_no_number(model: Model) -> None:
    untold = small_model(small_artifact())
    bars = replace(without_volume(recent_bars("MSFT"), "MSFT"), adj_close=None)
    mine, plain = forecast(model, bars), forecast(untold, bars)
    assert len(mine.warnings) == len(plain.warnings) + 2
    assert np.array_equal(mine.values, plain.values)


# --- ensembles


def joint_of(folder: Path, **members: Artifact) -> Predictor:
    stored = {name: artifact.load(save_artifact(folder / name, made)) for name, made in members.items()}
    return ensemble_of(manifest_of(stored), stored)


def test_an_ensemble_gives_each_data_warning_once(tmp_path: Path) -> None:
    joint = joint_of(
        tmp_path,
        long=with_training_record(artifact_of("lstm")),
        short=with_training_record(artifact_of("gru", encoder_length=20), ("AAPL", "MSFT")),
        prices=with_training_record(artifact_of("gru", features=RETURNS), adjustment="none"),
    )
    bars = replace(without_volume(recent_bars("AAPL", "IBM", "MSFT"), "IBM"), adj_close=None)
    warnings = forecast(joint, bars).warnings
    assert [sum(text in warning for warning in warnings) for text in (VOLUME, UNADJUSTED, UNSEEN)] == [1, 1, 1]
    assert any(
        warning.startswith("IBM, MSFT: not among the symbols that all members were trained on") for warning in warnings
    )


def test_an_ensemble_with_a_graph_names_a_stranger_once(tmp_path: Path) -> None:
    joint = joint_of(
        tmp_path,
        graph=with_training_record(small_artifact("graph"), UNIVERSE),
        rows=with_training_record(artifact_of("lstm"), UNIVERSE),
    )
    bars = replace(recent_bars(*UNIVERSE), symbols=("AAPL", "GOOG", "IBM", "NEW"))
    assert sum("NEW" in warning for warning in forecast(joint, bars).warnings) == 1


# --- on a server


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuantraClient]:
    folder = tmp_path_factory.mktemp("models")
    save_artifact(folder / "small" / "1", with_training_record(small_artifact()))
    with PredictionService.open(folder) as service, serving(service) as served, QuantraClient(served.target) as opened:
        yield opened


def test_doubts_come_with_the_forecast_and_its_reasons_at_the_server(client: QuantraClient) -> None:
    asked = Instance(input=without_volume(recent_bars("MSFT"), "MSFT"))
    warnings = client.predict(asked).warnings
    assert [text in warning for text, warning in zip((VOLUME, UNSEEN), warnings, strict=True)] == [True, True]
    assert (
        client.explain(ExplanationQuery(instance=asked, targets=(TargetPoint(5, 0.5),))).attributions[0].warnings
        == warnings
    )


def test_megabytes_of_jumps_give_a_few_kilobytes_of_warnings(client: QuantraClient) -> None:
    bars = replace(recent_bars("AAPL").last(140), adj_close=None)
    up = np.where(np.arange(140) % 2, 3.0, 1.0)
    broken = replace(bars, **{name: getattr(bars, name) * up for name in ("open", "high", "low", "close")})
    panel = renamed_copies(940, broken, name="S{:063}")
    assert sum(getattr(panel, name).nbytes for name in ("open", "high", "low", "close", "volume")) > 5 * 2**20
    warnings = client.predict(panel).warnings
    assert any("more price jumps like these" in warning for warning in warnings)
    assert sum(len(warning.encode()) for warning in warnings) < 2**14


def test_warnings_are_bounded_in_number_and_in_length() -> None:
    told = limit_warnings("é" * 100_000 for _ in range(1000))
    assert len(told) == MAX_WARNINGS + 1
    assert told[-1] == f"{1000 - MAX_WARNINGS} more warnings were left out"
    assert max(map(len, told)) == MAX_WARNING_LENGTH + 2


# --- on the command line


def exit_code(*arguments: str) -> int:
    """Run `quantra` and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        run(app, arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture(scope="module")
def question_flags(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Flags for unused covariates and an unknown symbol."""
    folder = tmp_path_factory.mktemp("asked")
    save_artifact(folder / "1", with_training_record(small_artifact()))
    recent_bars("MSFT").write_csv(folder / "bars.csv")
    (folder / "rates.csv").write_text("date,known_from,rate,spread\n2013-01-02,2013-01-02,1,2\n", encoding="utf-8")
    (folder / "facts.csv").write_text("symbol,sector\nMSFT,Software\n", encoding="utf-8")
    beside = ["--covariates", str(folder / "rates.csv"), "--static", str(folder / "facts.csv")]
    return ["--artifact", str(folder / "1"), "--bars", str(folder / "bars.csv"), *beside]


UNREAD = "the covariate files have columns that the model does not read: rate, spread, sector"


@pytest.mark.parametrize("command", ["predict", "explain"])
def test_each_data_warning_is_printed_once(
    command: str, question_flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(command, *question_flags) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert [printed.count(f"warning: {text}") for text in (UNREAD, f"MSFT: {UNSEEN}")] == [1, 1]


def test_each_data_warning_is_in_the_json_once(question_flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("predict", *question_flags, "--json") == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert [text in warning for text, warning in zip((UNREAD, UNSEEN), warnings, strict=True)] == [True, True]
    assert exit_code("explain", *question_flags, "--json") == 0
    assert json.loads(capsys.readouterr().out)["attributions"][0]["warnings"] == warnings


def test_the_report_holds_what_makes_its_forecast_doubtful(question_flags: list[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert exit_code("report", question_flags[1], *question_flags[2:], "--output", str(page)) == 0
    assert UNREAD.capitalize() in page.read_text(encoding="utf-8")
