"""A stock model trained and served on a GPU, compared with the CPU."""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from artifacts import SMALL, UNIVERSE
from market import bokeh_panel, learnable_bars

from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.card import TrainingFacts
from predictor.features import load_default_features
from predictor.forecast import Attribution, Forecast
from predictor.forecaster import Forecaster
from predictor.networks import KINDS
from trainers.stock import TrainingMaterial, train
from trainers.stock.recipe import StockRecipe, recipe_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
LEARNT = [name for name, kind in KINDS.items() if kind.is_trainable]
TF32 = 5e-3
"""Tolerance for cuDNN's recurrent layers, relative to the largest value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceResults:
    """Forecasts and attributions of the last bars on a device."""

    forecast: Forecast
    reasons: Attribution


@cache
def bars() -> BarPanel:
    return learnable_bars(bokeh_panel(*UNIVERSE).last(900))


def recipe(kind: str) -> StockRecipe:
    """A recipe of a few epochs, enough to move from the start."""
    usual = recipe_of(kind)
    settings = replace(
        usual.optimisation, max_epochs=4, learning_rate=1e-3, schedule="constant", ema=None, device="cuda"
    )
    return replace(usual, config=SMALL[kind], scale="window", calendar="XNYS", optimisation=settings)


def train_model(folder: Path, kind: str) -> TrainingFacts:
    made = train(TrainingMaterial(bars(), load_default_features()), recipe(kind), folder, consume=iter)
    assert made.summary.training is not None
    return made.summary.training


def answers(folder: Path, device: str) -> DeviceResults:
    """Answers of a model that passes its golden instance on that device."""
    with Forecaster.load(folder, device) as forecaster:
        recent = bars().last(200)
        return DeviceResults(forecast=forecaster.predict(recent), reasons=forecaster.feature_importance(recent))


def assert_near(found: FloatArray, expected: FloatArray) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=TF32 * np.abs(expected).max())


@pytest.mark.parametrize("kind", LEARNT)
def test_what_a_gpu_trained_in_16_bits_answers_there_as_on_the_cpu(kind: str, tmp_path: Path) -> None:
    training = train_model(tmp_path / "1", kind)
    assert training.device == "cuda"
    assert training.precision in {"bf16", "fp16"}
    assert training.best_epoch > 0
    there, here = answers(tmp_path / "1", "cuda"), answers(tmp_path / "1", "cpu")
    assert_near(there.forecast.values, here.forecast.values)
    assert there.reasons.converged.all()
    assert_near(there.reasons.per_row, here.reasons.per_row)
