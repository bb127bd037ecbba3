"""How a training went."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from predictor.charts.theme import BLUE, GREY, ORANGE, graph_objects, new_figure, require_shape
from predictor.errors import ConfigurationError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_TICKS = 12
"""Epochs that are named on the axis, at most; no half ones."""


def loss_curve(
    epochs: Sequence[int],
    train: Sequence[float],
    selection: Sequence[float],
    best: tuple[int, float],
    *,
    unit: str = "pinball loss",
) -> "Figure":
    """Loss per epoch on the training and the selection split, and the epoch whose weights were kept.

    Args:
        epochs: [E].
        train: [E], mean loss on the training split.
        selection: [E], mean loss on the selection split.
        best: what was kept: its epoch, 0 for the start before the first one, and its selection loss.
        unit: what the loss is.

    Raises:
        ConfigurationError: shapes that do not fit, or a best epoch that is not among the epochs.
        MissingPackageError: plotly is not installed.
    """
    require_shape("train", np.asarray(train), (len(epochs),))
    require_shape("selection", np.asarray(selection), (len(epochs),))
    best_epoch, best_loss = best
    if best_epoch and best_epoch not in epochs:
        raise ConfigurationError(f"the best epoch, {best_epoch}, is not among the epochs {list(epochs)}")
    scatter = graph_objects().Scatter
    figure = new_figure("Loss", "epoch", unit)
    for name, losses, line in (
        ("train", train, {"color": GREY, "width": 2, "dash": "dot"}),
        ("selection", selection, {"color": BLUE, "width": 2.5}),
    ):
        hover = f"{name}: %{{y:.5g}} {unit}<extra></extra>"
        figure.add_trace(
            scatter(x=list(epochs), y=list(losses), name=name, mode="lines", line=line, hovertemplate=hover)
        )
    figure.add_trace(
        scatter(
            x=[best_epoch],
            y=[best_loss],
            name=f"kept: epoch {best_epoch}" if best_epoch else "kept: the start",
            mode="markers",
            marker={"color": ORANGE, "size": 11, "symbol": "star"},
            hoverinfo="skip",
        )
    )
    figure.update_layout(hovermode="x unified")
    figure.update_xaxes(dtick=1 + len(epochs) // _TICKS)
    return figure
