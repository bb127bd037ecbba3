"""Prices that overflow fail for their symbol only, at every interface."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from artifacts import recent_bars, save_small_artifact, small_artifact, small_model, small_models
from ensembles import ensemble_of, manifest_of
from numpy.typing import NDArray
from serving import serving

from predictor import artifact
from predictor._pb import prediction_pb2 as pb
from predictor.bars import BarPanel
from predictor.call_context import NEVER
from predictor.client import QuantraClient
from predictor.embed import EmbeddedServer, open_embedded_server
from predictor.errors import QuantraError, get_error_status
from predictor.forecast import Forecast, Outcome
from predictor.forecaster import Forecaster
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import ExplanationQuery, Instance
from predictor.model import Predictor
from predictor.networks import Target, TargetKind
from predictor.service import PredictionService
from predictor.wire import errors, forecasts, instances

FloatArray = NDArray[np.float64]
MANY = 1000
BAD = 417
"""Index of the bad symbol."""
COLUMNS = ("open", "high", "low", "close", "volume")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceResult:
    """Result of one instance at any interface."""

    reason: str = ""
    """Error of an instance without a forecast."""
    values: FloatArray = field(default_factory=lambda: np.zeros(0))
    refusals: Mapping[str, str] = field(default_factory=dict[str, str])
    """Messages per refused symbol."""


Ask = Callable[[Sequence[BarPanel]], Sequence[InstanceResult]]


def with_prices(bars: BarPanel, row: int, pattern: FloatArray, *, adjusted: bool = True) -> BarPanel:
    """The panel with these open, high, low and close prices of one symbol."""
    changed = {name: getattr(bars, name).copy() for name in COLUMNS}
    for name in COLUMNS[:-1]:
        changed[name][row] = pattern
    adj_close = None if bars.adj_close is None or not adjusted else bars.adj_close.copy()
    if adj_close is not None:
        adj_close[row] = pattern
    return replace(bars, **changed, adj_close=adj_close)


def swinging(sessions: int, high: float = 1e200, low: float = 1e-200) -> FloatArray:
    return one_by_one(high if day % 2 else low for day in range(sessions))


def one_by_one(prices: Iterable[float]) -> FloatArray:
    return np.array(list(prices), np.float64)


GOOD = recent_bars("AAPL")
THREE = recent_bars("AAPL", "IBM", "GOOG")
PATTERNS: Mapping[str, FloatArray] = {
    "from 1e-200 to 1e200": swinging(200),
    "from the smallest to the largest": swinging(200, 1.7e308, 5e-324),
    "one day of 1e200": one_by_one(1e200 if day == 190 else 1.0 for day in range(200)),
    "at the end 1e-200": one_by_one(1e-200 if day == 199 else 1.0 for day in range(200)),
    "nearly infinite": np.full(200, 1e307),
    "the smallest steps there are": one_by_one(5e-324 * (1 + day % 7) for day in range(200)),
    "from nothing to everything": one_by_one(math.exp(7 * (day - 100)) for day in range(200)),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_models(tmp_path_factory.mktemp("models"))


# --- interfaces


@pytest.fixture(scope="module")
def service(models: Path) -> Iterator[PredictionService]:
    with PredictionService.open(models, device="cpu") as opened:
        yield opened


@pytest.fixture(scope="module", params=["forecaster", "client", "embedded"])
def ask(request: pytest.FixtureRequest, models: Path, service: PredictionService) -> Iterator[Ask]:
    """One interface to the model."""
    if request.param == "forecaster":
        with Forecaster.load(models / "small" / "1", device="cpu") as forecaster:
            yield lambda panels: results_of(forecaster.predict_many(panels))
    elif request.param == "client":
        with serving(service) as served, QuantraClient(served.target, "small") as client:
            yield lambda panels: results_of(client.predict_many(panels))
    else:
        door, _ = open_embedded_server(str(models), "cpu", 256, 1)
        assert door is not None
        yield lambda panels: embedded(door, panels)
        door.close()


def results_of(outcomes: Sequence[Outcome]) -> list[InstanceResult]:
    return [
        InstanceResult(reason=get_error_status(one).reason)
        if isinstance(one, QuantraError)
        else InstanceResult(
            values=one.values, refusals={symbol: error.message for symbol, error in one.refusals.items()}
        )
        for one in outcomes
    ]


def embedded(door: EmbeddedServer, panels: Sequence[BarPanel]) -> list[InstanceResult]:
    """Call the embedded server with serialised requests."""
    asked = [instances.encode(Instance(input=bars)) for bars in panels]
    request = pb.PredictRequest(model="small", instances=asked).SerializeToString()
    answer, error = door.call("Predict", request, 100).answer()
    assert error == b""
    return results_of([_outcome(result) for result in pb.PredictResponse.FromString(answer).results])


def _outcome(result: pb.Result) -> Outcome:
    return errors.decode(result.error) if result.HasField("error") else forecasts.decode(result.forecast)


# --- one among many


def test_a_bad_symbol_among_a_thousand_instances_fails_alone(ask: Ask) -> None:
    panels = [GOOD] * MANY
    panels[BAD] = with_prices(GOOD, 0, PATTERNS["from 1e-200 to 1e200"])
    answers = ask(panels)
    assert {k: answer.reason for k, answer in enumerate(answers) if answer.reason} == {BAD: "BAR_SUSPECT"}
    (alone,) = ask([GOOD])
    assert all(np.allclose(one.values, alone.values, rtol=0, atol=1e-6) for one in answers if not one.reason)


def test_a_bad_symbol_of_a_panel_fails_alone(ask: Ask) -> None:
    (found,), (whole,) = ask([with_prices(THREE, 1, PATTERNS["from 1e-200 to 1e200"])]), ask([THREE])
    assert list(found.refusals) == ["IBM"]
    assert "wrong bars?" in found.refusals["IBM"]
    assert np.isnan(found.values[1]).all()
    np.testing.assert_allclose(found.values[[0, 2]], whole.values[[0, 2]], rtol=0, atol=1e-6)


# --- every kind of model


LOG_VOLATILITY = Target(kind=TargetKind.LOG_VOLATILITY)


def _joint(folder: Path) -> Predictor:
    stored = {str(seed): artifact.load(save_small_artifact(folder / str(seed), seed=seed)) for seed in (1, 2)}
    return ensemble_of(manifest_of(stored), stored)


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Predictor]:
    networks = {kind: small_model(small_artifact(kind)) for kind in ("lstm", "gru", "hybrid", "tft", "har", "garch")}
    return {
        **networks,
        "fitted": small_model(small_artifact(fitted=True)),
        "volatility": small_model(small_artifact(target=LOG_VOLATILITY)),
        "fitted volatility": small_model(small_artifact(target=LOG_VOLATILITY, fitted=True)),
        "ensemble": _joint(tmp_path_factory.mktemp("joint")),
    }


@pytest.mark.parametrize("adjusted", [True, False], ids=["adj_close", "unadjusted"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_extreme_prices_do_not_change_other_symbols_forecasts(
    kinds: dict[str, Predictor], pattern: str, *, adjusted: bool
) -> None:
    """Obviously bad bars are refused at once; a numpy warning is an error here, as in a strict host."""
    bars = with_prices(THREE, 1, PATTERNS[pattern], adjusted=adjusted)
    sound = THREE if adjusted else replace(THREE, adj_close=None)
    for kind, model in kinds.items():
        beside, own, whole = model.predict(
            [Instance(input=bars), Instance(input=bars.select(["IBM"])), Instance(input=sound)],
            AFTER_ALL_SESSIONS,
            NEVER,
        )
        assert isinstance(beside, Forecast), kind
        assert isinstance(whole, Forecast), kind
        np.testing.assert_allclose(beside.values[[0, 2]], whole.values[[0, 2]], rtol=0, atol=1e-6, err_msg=kind)
        assert np.isfinite(beside.values[1]).all() or list(beside.refusals) == ["IBM"]
        assert isinstance(own, Forecast) == ("IBM" not in beside.refusals)


def test_a_graph_answers_the_others_as_without_a_bad_symbol() -> None:
    model, bars = small_model(small_artifact("graph")), with_prices(THREE, 1, PATTERNS["from 1e-200 to 1e200"])
    beside, without = model.predict(
        [Instance(input=bars), Instance(input=THREE.select(["AAPL", "GOOG"]))], AFTER_ALL_SESSIONS, NEVER
    )
    assert isinstance(beside, Forecast)
    assert isinstance(without, Forecast)
    assert list(beside.refusals) == ["IBM"]
    np.testing.assert_allclose(beside.values[[0, 2]], without.values, rtol=0, atol=1e-6)


def test_the_reasons_of_the_others_are_given_too(kinds: dict[str, Predictor]) -> None:
    bars = with_prices(THREE, 1, PATTERNS["from 1e-200 to 1e200"])
    for kind, model in kinds.items():
        query = ExplanationQuery(instance=Instance(input=bars), targets=model.default_targets()[:1], tolerance=0.1)
        (found,) = model.explain(query, AFTER_ALL_SESSIONS, NEVER)
        assert np.isfinite(found.per_row[[0, 2]]).all(), kind
