"""Losses of the default network for each `--scale`, on the selection part.

Data are the bundled stocks (AAPL, GOOG, IBM, MSFT, 2000 to 2013) and, from the package arch, S&P 500 and NASDAQ
composite (1999 to 2018). Losses are pinball losses in the target's unit, so that scales are comparable; each horizon of
a return is divided by the square root of its days. The test part is not used.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.report import Row, parse_arguments, publish, shown
from predictor.bars import BarPanel
from predictor.features import default_features
from predictor.networks import Target, TargetKind, pinball_loss
from trainers.demo.market import CALENDAR, real_bars
from trainers.loop import Report
from trainers.stock.data import History, TrainingWindows
from trainers.stock.model_fit import fit, fit_pipeline, prepare
from trainers.stock.recipe import Optimisation, Scale, StockRecipe

SEEDS: Final = 3
INDICES: Final = {"sp500": "SPX", "nasdaq": "IXIC"}
SCALES: Final[Mapping[TargetKind, tuple[Scale, ...]]] = {
    TargetKind.LOG_RETURN: ("window", "har", "garch", "mix"),
    TargetKind.LOG_VOLATILITY: ("window", "har"),
}
UNIT: Final = 1e4
"""Basis points of log return, or 1/10,000 of log volatility."""


def indices() -> BarPanel:
    """Both indices on their common sessions."""
    frames = [import_module(f"arch.data.{name}").load().sort_index() for name in INDICES]
    dates = frames[0].index.intersection(frames[1].index)

    def column(name: str) -> NDArray[np.float64]:
        return np.stack([frame.loc[dates, name].to_numpy(np.float64) for frame in frames])

    return BarPanel(
        symbols=tuple(INDICES.values()),
        sessions=dates.strftime("%Y%m%d").to_numpy(np.int32),
        open=column("Open"),
        high=column("High"),
        low=column("Low"),
        close=column("Close"),
        volume=column("Volume"),
    )


def losses(bars: BarPanel, recipe: StockRecipe) -> tuple[float, float]:
    """Losses of the start and of the best epoch on the selection part, in the target's unit."""
    splits = recipe.splits(bars.sessions)
    history = History(bars, fit_pipeline(bars, default_features(), recipe, splits))
    windows = history.windows(splits.selection)
    prepared = prepare(history, splits, recipe, None)
    start = _loss(prepared.network.eval(), history, windows, recipe)
    fitted = fit(prepared, recipe.optimisation, None, _unwatched)
    return start, _loss(fitted.network, history, windows, recipe)


@torch.inference_mode()
def _loss(network: torch.nn.Module, history: History, windows: TrainingWindows, recipe: StockRecipe) -> float:
    """Mean over windows and horizons; a horizon's scale does not include its spread, and neither does the loss."""
    levels, parts = torch.tensor(recipe.quantiles), []
    for batch in history.batches(windows):
        units = network(batch.inputs.as_float32())
        parts.append(pinball_loss(units, batch.target, levels).mean(-1) * batch.inputs.scale)
    return UNIT * float(torch.cat(parts).nanmean())


def _unwatched(reports: Iterable[Report]) -> Iterator[Report]:
    return iter(reports)


def rows(name: str, bars: BarPanel, recipe: StockRecipe, seeds: int) -> Iterator[Row]:
    """One row per scale: mean over seeds, and the loss of the start."""
    for scale in SCALES[recipe.target.kind]:
        tried = [replace(recipe, scale=scale, optimisation=Optimisation(seed=seed)) for seed in range(seeds)]
        found = np.array([losses(bars, one) for one in tried])
        kept = found[:, 1]
        spread = f"± {kept.std(ddof=1):.2f} over {seeds} seeds; " if seeds > 1 else ""
        yield shown(f"{name}, {recipe.target.kind}, {scale}", kept.mean(), detail=f"{spread}start {found[0, 0]:.2f}")


def main() -> int:
    arguments = parse_arguments(__doc__ or "")
    torch.set_num_threads(1)
    markets = {"stocks": real_bars(), "indices": indices()}
    found = [
        row
        for name, bars in markets.items()
        for kind in TargetKind
        for row in rows(
            name, bars, StockRecipe(calendar=CALENDAR, target=Target(kind=kind)), 1 if arguments.quick else SEEDS
        )
    ]
    return publish(found, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
