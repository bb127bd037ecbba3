"""The in-process Forecaster: same results as the service, import without torch, and display of forecasts."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import torch
from artifacts import recent_bars, save_small_artifact
from canned_service import attribution, forecast, ranking

from predictor import Forecaster
from predictor.call_context import CallContext
from predictor.errors import ArtifactError, InvalidInputError, TooFewBarsError, UnavailableError, UnknownHorizonError
from predictor.forecast import Forecast
from predictor.instance import ExplanationQuery, Instance
from predictor.internals import Internal, InternalAxis
from predictor.service import PredictionService


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    save_small_artifact(folder / "small" / "3")
    return folder


@pytest.fixture(scope="module")
def forecaster(models: Path) -> Iterator[Forecaster]:
    with Forecaster.load(models / "small" / "3", device="cpu") as opened:
        yield opened


def test_the_forecaster_answers_as_the_service_does(models: Path, forecaster: Forecaster) -> None:
    bars = recent_bars("AAPL", "IBM")
    mine = forecaster.predict(bars)
    with PredictionService.open(models, device="cpu") as service:
        (served,) = service.predict("small@3", [Instance(input=bars)], CallContext()).result()
    assert isinstance(served, Forecast)
    assert np.array_equal(mine.values, served.values)
    assert (mine.model, mine.version, mine.weights_hash) == ("small", 3, served.weights_hash)
    assert mine.forecast_id == served.forecast_id


def test_many_panels_are_answered_in_order_and_a_bad_one_with_its_error(forecaster: Forecaster) -> None:
    bars = recent_bars("AAPL")
    first, second, third = forecaster.predict_many([bars, Instance(input=bars.last(5)), recent_bars("IBM")])
    assert isinstance(first, Forecast)
    assert isinstance(second, TooFewBarsError)
    assert isinstance(third, Forecast)
    assert (first.symbols, third.symbols) == (("AAPL",), ("IBM",))


def test_one_bad_panel_raises_its_error(forecaster: Forecaster) -> None:
    with pytest.raises(
        TooFewBarsError, match="have 5 bars in the last 60 sessions, need 30; send earlier bars too, ideally 140"
    ):
        forecaster.predict(recent_bars("AAPL").last(5))


def test_feature_importance_is_of_the_horizon_and_quantile_asked(forecaster: Forecaster) -> None:
    found = forecaster.feature_importance(recent_bars("AAPL"), horizon=20, quantile=0.9)
    assert (found.horizon, found.quantile, found.symbols) == (20, 0.9, ("AAPL",))
    with pytest.raises(UnknownHorizonError):
        forecaster.feature_importance(recent_bars("AAPL"), horizon=3)


def test_an_empty_query_explains_every_horizon(forecaster: Forecaster) -> None:
    explanation = forecaster.explain(ExplanationQuery(instance=Instance(input=recent_bars("AAPL"))))
    assert [a.horizon for a in explanation.attributions] == [1, 5, 10, 20]


def test_the_forecaster_describes_its_model(forecaster: Forecaster) -> None:
    info = forecaster.model()
    assert (info.name, info.version, info.bars_needed) == ("small", 3, 140)


@pytest.mark.parametrize("name", ["mine", "v2", "²"])
def test_a_folder_outside_a_models_folder_loads_too(tmp_path: Path, name: str) -> None:
    with Forecaster.load(str(save_small_artifact(tmp_path / name)), device="cpu") as forecaster:
        assert (forecaster.model().name, forecaster.model().version) == (tmp_path.name, 0)


def test_a_model_that_is_loaded_under_inference_mode_can_be_explained(models: Path) -> None:
    with torch.inference_mode(), Forecaster.load(models / "small" / "3", device="cpu") as loaded:
        assert loaded.feature_importance(recent_bars()).converged.all()


def test_a_folder_that_is_no_artifact_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"has no manifest.json, so it is not an artifact; copy"):
        Forecaster.load(tmp_path)
    with pytest.raises(ArtifactError, match="is not a folder"):
        Forecaster.load(tmp_path / "1")


def test_a_closed_forecaster_answers_no_more(models: Path) -> None:
    forecaster = Forecaster.load(models / "small" / "3", device="cpu")
    forecaster.close()
    with pytest.raises(UnavailableError, match="this forecaster is closed"):
        forecaster.predict(recent_bars("AAPL"))


# --- returned values


def test_a_table_has_one_row_a_symbol_horizon_and_quantile(forecaster: Forecaster) -> None:
    answer = forecaster.predict(recent_bars("AAPL", "IBM"))
    table = answer.table()
    assert len(table) == 2 * 4 * 3
    assert table[0][:4] == ("AAPL", 1, date(2013, 3, 4), 0.1)
    assert table[-1][:4] == ("IBM", 20, date(2013, 4, 1), 0.9)
    assert table[-1].value == answer.values[1, 3, 2]
    assert answer.prices is not None
    assert table[-1].price == answer.prices[1, 3, 2]
    assert answer.to_numpy() is answer.values


def test_a_table_without_prices_or_dates_is_refused() -> None:
    row = replace(forecast(("AAPL",)), target_sessions=()).table()[1]
    assert np.isnan(row.price)
    assert row.session is None


def test_a_table_shows_score_and_rank_of_a_ranking_model() -> None:
    rows = ranking(("A", "B")).table()
    assert (np.isnan(rows[0].score), rows[0].rank) == (True, 0)
    assert [(row.score, row.rank) for row in rows[-3:]] == [(3 / 7, 1)] * 3
    plain = forecast(("A",)).table()[1]
    assert (np.isnan(plain.score), plain.rank) == (True, 0)


def test_html_shows_score_and_rank_only_where_there_are_any() -> None:
    html = ranking(("A", "B"))._repr_html_()
    assert "<th>score</th><th>rank</th>" in html
    assert "<td>+0.4286</td><td>1</td>" in html
    assert "rank" not in forecast(("A",))._repr_html_()


def test_html_escapes_what_the_caller_named() -> None:
    named = "<script>alert('&')</script>"
    html = forecast((named,))._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;" in html
    reasons = replace(attribution(("A",)), row_names=("a", "b", named), unit=named)._repr_html_()
    assert "<script" not in reasons
    assert reasons.count("&lt;script&gt;") == 2
    told = Internal(name=named, axis=InternalAxis.INPUTS, labels=(named,), values=np.ones((1, 1)))
    internals = replace(attribution(("A",)), internals=(told,))._repr_html_()
    assert "<script" not in internals
    assert internals.count("&lt;script&gt;") == 2


def test_contributions_come_largest_first() -> None:
    found = attribution(("A", "B"))
    assert [c.name for c in found.table("B")] == ["scale", "vol_20", "ret_1"]
    assert found.table()[0].value == found.per_row[0, 2]
    np.testing.assert_allclose(found.importance.sum(axis=1), 1)


def test_a_symbol_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"no symbol 'ZZZ'; there are \['A'\]"):
        attribution(("A",)).table("ZZZ")
    with pytest.raises(InvalidInputError, match="no symbol 'ZZZ'"):
        forecast(("A",)).plot("ZZZ")


def test_importing_the_package_imports_no_torch() -> None:
    code = (
        "import sys, predictor, predictor.forecast, predictor.bars, predictor.instance\n"
        "print(sorted(set(sys.modules) & {'torch', 'grpc', 'plotly', 'safetensors', 'exchange_calendars'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
