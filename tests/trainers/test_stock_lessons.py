"""The batches that a network learns from, as the loop moves them to a device."""

import pytest
import torch
from market import bokeh_panel
from torch import Tensor

from predictor.features import default_features
from predictor.networks import GraphConfig, LSTMConfig, NetworkConfig
from trainers.stock.data import History
from trainers.stock.fitting import fit_pipeline, prepare
from trainers.stock.recipe import Recipe


@pytest.mark.parametrize(
    ("kind", "config"), [("lstm", LSTMConfig(hidden=4)), ("graph", GraphConfig(hidden=4, heads=1, neighbours=1))]
)
def test_no_batch_holds_float64_which_apples_devices_do_not_have(kind: str, config: NetworkConfig) -> None:
    bars = bokeh_panel("AAPL", "GOOG").last(900)
    recipe = Recipe(kind=kind, config=config, calendar="XNYS")
    splits = recipe.splits(bars.sessions)
    history = History(bars, fit_pipeline(bars, default_features(), recipe, splits))
    lesson = prepare(history, splits, recipe, None).lesson
    for source in (lesson.train, lesson.selection):
        batch = next(iter(source.batches(0)))
        tensors = [part for part in (*batch.inputs, *batch) if isinstance(part, Tensor)]
        assert len(tensors) > len(batch.inputs)
        assert not [tensor for tensor in tensors if tensor.dtype == torch.float64]
