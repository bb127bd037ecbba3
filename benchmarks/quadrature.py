"""Number of nodes that integrated gradients need, and the error of their cells, for several models and first counts.

Models of four kinds are trained on the demo's bars, in units of HAR and of the window; one is trained too long at too
high a rate. Windows of the test years are explained for every horizon and quantile at a tolerance of 1 %. The number
of nodes doubles from 2, 3, 4 or 8 until the gap is small enough, or the gap and the roughness of the cells, as
shipped. The error is relative to 256 nodes: the sum of the cells' absolute differences over the sum of the absolute
contributions, or over the denominator of the relative gap if that is larger.
"""

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.explain import FLOOR, POINTS, our_explainer, test_windows, trained
from benchmarks.report import Row, at_most, parse_arguments, publish, shown
from predictor.artifact import Artifact
from predictor.bars import BarPanel
from predictor.explain import NODE_COUNTS, Contributions, integrated_gradients
from predictor.instance import Deadline
from predictor.networks import Inputs, kind_named
from trainers.demo.market import CALENDAR, real_bars
from trainers.stock.recipe import Optimisation, Scale, StockRecipe, choose_default_optimisation

FloatArray = NDArray[np.float64]

TOLERANCE: Final = 0.01
REFERENCE: Final = 256
KINDS: Final = ("lstm", "gru", "hybrid", "tft")
SCALES: Final[tuple[Scale, ...]] = ("har", "window")
BEGINNINGS: Final = tuple(tuple(first * 2**k for k in range(7)) for first in (2, 3, 4, 8))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecipe:
    """A model to train."""

    name: str
    recipe: StockRecipe


def models_to_train(*, quick: bool) -> list[ModelRecipe]:
    """All kinds and scales with different seeds, and an LSTM that is trained too long at ten times the rate."""
    hot = Optimisation(max_epochs=15, patience=15, learning_rate=3e-3, device="cpu")
    found = [
        ModelRecipe(
            name="lstm, window, overtrained", recipe=StockRecipe(scale="window", calendar=CALENDAR, optimisation=hot)
        ),
    ]
    for seed, (kind, scale) in enumerate(product(KINDS, SCALES)):
        optimisation = replace(choose_default_optimisation(kind), device="cpu", seed=seed)
        config = kind_named(kind).config()
        recipe = StockRecipe(kind=kind, config=config, scale=scale, calendar=CALENDAR, optimisation=optimisation)
        found.append(ModelRecipe(name=f"{kind}, {scale}", recipe=recipe))
    if quick:
        short = replace(found[1].recipe.optimisation, max_epochs=1)
        return [replace(found[1], recipe=replace(found[1].recipe, optimisation=short))]
    return found


@contextmanager
def judged_by(*, roughness: bool) -> Generator[None]:
    """Decide whether the nodes suffice by the gap only, or by gap and roughness."""

    def anything(_count: int, _tolerance: float) -> float:
        return np.inf

    shipped = integrated_gradients.limit_roughness
    if not roughness:
        integrated_gradients.limit_roughness = anything
    try:
        yield
    finally:
        integrated_gradients.limit_roughness = shipped


def cells(found: Contributions) -> FloatArray:
    """[N, cells] all contributions."""
    groups = (found.observed, found.known, found.static, found.location, found.scale, found.conformal)
    return np.concatenate([group.reshape(len(group), -1) for group in groups], axis=1)


def error(found: Contributions, reference: Contributions, floor: FloatArray) -> FloatArray:
    """[N] relative error of the cells."""
    size = np.abs(cells(reference)).sum(1)
    against = np.maximum(np.maximum(size, floor), np.abs(reference.prediction - reference.baseline_prediction))
    return np.abs(cells(found) - cells(reference)).sum(1) / against


def spent(found: Contributions, counts: Sequence[int]) -> FloatArray:
    """[N] total nodes, including earlier rounds."""
    return np.cumsum(counts)[np.searchsorted(counts, found.nodes)].astype(np.float64)


def rows_of(one: ModelRecipe, bars: BarPanel, windows: int, *, judged: bool) -> list[Row]:
    """Rows of one model for every first count."""
    made = trained(bars, one.recipe)
    inputs = test_windows(bars, made, one.recipe, windows)
    floors = floors_of(made, inputs)
    explainer = our_explainer(made)
    reference = explainer.explain(inputs, POINTS, deadline=Deadline(), node_counts=(REFERENCE,))
    found: list[Row] = []
    for counts, roughness in product(BEGINNINGS, (False, True)):
        with judged_by(roughness=roughness):
            contributions = explainer.explain(
                inputs, POINTS, deadline=Deadline(), tolerance=TOLERANCE, node_counts=counts
            )
        off = np.stack([error(*three) for three in zip(contributions, reference, floors, strict=True)])
        nodes = np.stack([spent(each, counts) for each in contributions])
        shipped = roughness and counts[0] == NODE_COUNTS[0]
        name = f"{one.name}: from {counts[0]}, {'gap and roughness' if roughness else 'gap only'}"
        detail = (
            f"99 % of pairs {np.quantile(off, 0.99):.2%}, median {np.median(off):.2%}; nodes {nodes.mean():.1f} on "
            f"average, {nodes.max():.0f} at most"
        )
        worst = float(off.max())
        found.append(
            at_most(f"{name}: largest error", worst, TOLERANCE, detail=detail, judged=judged)
            if shipped
            else shown(f"{name}: largest error", worst, detail=detail)
        )
    return found


def floors_of(made: Artifact, inputs: Inputs) -> list[FloatArray]:
    """[N] for each point, as in `Contributions.relative_gap`."""
    spread, scale = made.pipeline.target.spread, inputs.scale.numpy()
    return [FLOOR * spread[h] * scale[:, h] for h, _ in POINTS]


def main() -> int:
    arguments = parse_arguments(__doc__ or "")
    torch.set_num_threads(1)
    bars, windows = real_bars(), 2 if arguments.quick else 16
    rows: list[Row] = []
    for one in models_to_train(quick=arguments.quick):
        rows += rows_of(one, bars, windows, judged=not arguments.quick)
    return publish(rows, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
