"""A tiny model and bars for tests of `quantra daily` and what follows from it."""

from dataclasses import replace
from functools import cache
from pathlib import Path

from market import bokeh_panel

from predictor.bars import BarPanel
from predictor.features import load_default_features
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.jobs import JobRunner, LocalRunner
from predictor.ledger import Ledger
from predictor.networks import Target
from trainers.stock import RollingSplits, StockRecipe, TrainingMaterial, train
from trainers.stock.daily import DailySettings, DailySummary, run_due_evenings
from trainers.stock.recipe import recipe_of

LEARNT = 20091231
"""The last session that the model has seen."""
HAR = replace(
    recipe_of("har"),
    calendar="XNYS",
    target=Target(horizons=(1, 3)),
    encoder_length=10,
    parts=RollingSplits(selection=40, calibration=120),
)
"""A recipe whose training takes no time."""


@cache
def daily_bars(until: int = 20100129) -> BarPanel:
    return bokeh_panel("AAPL", "IBM", "MSFT").between(20070103, until)


def save_daily_model(model_folder: Path, version: int = 1, recipe: StockRecipe = HAR, until: int = LEARNT) -> Path:
    """Train a version of the model in `model_folder`, and return the folder of models."""
    train(
        TrainingMaterial(daily_bars(until), load_default_features()), recipe, model_folder / str(version), consume=iter
    )
    return model_folder.parent


def run_evenings(
    ledger: str | Path,
    model_folder: Path,
    bars: BarPanel,
    *,
    first: int = 0,
    evidence_every: int = 1,
    runner: JobRunner | None = None,
) -> DailySummary:
    """Run the evenings that are due."""
    with Ledger.open(ledger, create=True) as opened:
        return run_due_evenings(
            DailySettings(
                ledger=opened,
                model_folder=model_folder,
                evidence_every=evidence_every,
                runner=runner or LocalRunner(),
            ),
            bars,
            AFTER_ALL_SESSIONS,
            first=first,
        )
