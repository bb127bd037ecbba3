"""Artifacts of format 1, which earlier versions wrote: they load, pass their golden instance, forecast the same."""

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from artifacts import UNIVERSE, recent_bars
from numpy.typing import NDArray

from predictor import artifact
from predictor.errors import TooFewBarsError
from predictor.forecast import TargetPoint
from predictor.forecaster import Forecaster
from predictor.instance import Instance, Query
from predictor.networks import WindowNormaliser
from predictor.windows import BarRequirements

WRITTEN = Path(__file__).parents[1] / "fixtures" / "format_1.zip"
"""An ensemble of an LSTM and a graph model, a GRU of volatility at lag 1, and what they answered when written."""
FOLDERS = {
    "joint": "joint/1",
    "joint-lstm": "joint/1/members/lstm",
    "joint-graph": "joint/1/members/graph",
    "volatility": "volatility/1",
}
SAME = 1e-7
"""Largest difference in the target's unit: other processors add in another order."""
QUADRATURE = 0.01
"""What reasons may be off by, of all of them together; those in the fixture were written with eight nodes."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("format-1")
    with zipfile.ZipFile(WRITTEN) as packed:
        packed.extractall(folder)
    return folder


@dataclass(frozen=True, slots=True, eq=False)
class Old:
    """A model, and what it answered when it was written."""

    forecaster: Forecaster
    values: NDArray[np.float64]
    """[S, H, Q] of four stocks."""
    per_row: NDArray[np.float64]
    """[S, R] contributions to the median of five days."""


@pytest.fixture(scope="module", params=list(FOLDERS))
def old(models: Path, request: pytest.FixtureRequest) -> Iterator[Old]:
    """Loaded, which checks the golden instance."""
    with (
        np.load(models / "answers.npz") as answers,
        Forecaster.load(models / FOLDERS[request.param]) as forecaster,
    ):
        yield Old(forecaster, answers[request.param], answers[f"{request.param}-per_row"])


def test_a_model_forecasts_as_when_it_was_written(old: Old) -> None:
    found = old.forecaster.predict(recent_bars(*UNIVERSE))
    np.testing.assert_allclose(found.values, old.values, rtol=0, atol=SAME)
    assert (found.warnings, dict(found.refusals), found.skill) == ((), {}, None)


def test_a_models_reasons_are_as_when_it_was_written(old: Old) -> None:
    """As far as both quadratures tell; loading has compared the golden attribution, of 32 nodes, far more sharply."""
    query = Query(instance=Instance(input=recent_bars(*UNIVERSE)), targets=(TargetPoint(5, 0.5),))
    (found,) = old.forecaster.explain(query).attributions
    off = np.abs(found.per_row - old.per_row).sum(axis=1)
    assert (off < QUADRATURE * np.abs(old.per_row).sum(axis=1)).all()


def test_what_the_format_did_not_say_is_as_it_was(models: Path) -> None:
    pipeline = artifact.load(models / FOLDERS["joint-lstm"]).artifact.pipeline
    assert pipeline.normaliser == WindowNormaliser(window=60, decay=0.94)
    assert pipeline.minimum == BarRequirements(encoder_share=0.5, values=20)


def test_a_symbol_with_two_bars_is_refused_by_old_models_too(old: Old) -> None:
    with pytest.raises(TooFewBarsError, match=r"AAPL: have 2 bars in the last 60 sessions, need 30"):
        old.forecaster.predict(recent_bars("AAPL").last(2))
