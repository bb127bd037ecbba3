"""Made-up covariate files that match real bars, and a small model that reads them."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from artifacts import QUANTILES, SMALL, small_model
from market import bokeh_panel
from numpy.typing import NDArray

from predictor import artifact, golden
from predictor.artifact import Artifact, BaselineSpec, Conformal, Manifest
from predictor.bars import BarPanel
from predictor.covariates import CovariateSource
from predictor.errors import format_date
from predictor.features import CovariateFields, load_default_features
from predictor.networks import Target, build_network, get_kind
from predictor.windows import Pipeline
from trainers.stock import DataSplits, StockRecipe
from trainers.stock.model_fit import fit_pipeline
from trainers.stock.splits import SplitPart

SYMBOLS = ("AAPL", "GOOG", "IBM")
FIELDS = CovariateFields(observed=("short_interest", "credit_spread"), known=("rebalance",))
TARGET = Target(horizons=(1, 5))
RECIPE = StockRecipe(target=TARGET, calendar="XNYS", encoder_length=20)
SPLITS = DataSplits(
    train=SplitPart("train", 20080102, 20090630),
    selection=SplitPart("selection", 20090701, 20091231),
    calibration=SplitPart("calibration", 20100104, 20100630),
    test=SplitPart("test", 20100701, 20101231),
)


@cache
def bars() -> BarPanel:
    """Three stocks, 2008 to 2010."""
    return bokeh_panel(*SYMBOLS).between(20080102, 20101231)


def write_files(folder: Path) -> tuple[list[Path], Path]:
    """Write short interest per symbol, 3 sessions late, a credit spread for all, index days and two static facts."""
    sessions = bars().sessions
    dated = [folder / "short_interest.csv", folder / "market.csv", folder / "rebalance.csv"]
    dated[0].write_text(_short_interest(sessions), encoding="utf-8")
    dated[1].write_text(_market(sessions), encoding="utf-8")
    dated[2].write_text(_rebalance(sessions), encoding="utf-8")
    static = folder / "static.csv"
    static.write_text("symbol,sector,cap\nAAPL,Hardware,5.5\nGOOG,Media,\nIBM,Hardware,2\n", encoding="utf-8")
    return dated, static


def source(folder: Path) -> CovariateSource:
    """The covariates in all of these files."""
    dated, static = write_files(folder)
    return CovariateSource.read(dated, static)


def pipeline_with(covariates: CovariateSource) -> Pipeline:
    """Default features and covariate features, fitted up to June 2009."""
    return fit_pipeline(bars(), load_default_features().with_covariates(FIELDS), RECIPE, SPLITS, covariates)


def artifact_with(pipeline: Pipeline, kind: str = "lstm") -> Artifact:
    """A network with seeded random weights that reads rows."""
    config = replace(SMALL[kind], dropout=0.0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = build_network(get_kind(kind), config, sizes=pipeline.sizes, target=TARGET, levels=QUANTILES)
        torch.nn.init.normal_(network.get_parameter("head.bias"), std=0.3)
        torch.nn.init.normal_(network.get_parameter("head.weight"), std=0.3)
    manifest = Manifest(
        kind=get_kind(kind),
        config=config,
        target=TARGET,
        quantiles=QUANTILES,
        normaliser=pipeline.normaliser,
        encoder_length=pipeline.encoder_length,
        conformal=Conformal(offsets=((-0.05, 0.0, 0.08),) * 2, effective_samples=(100.0,) * 2),
        baseline=BaselineSpec(
            name="train_mean",
            known=(0.0,) * pipeline.sizes.known,
            static=(0.1,) * pipeline.sizes.static,
            location=(0.0,) * 2,
            scale=(0.02,) * 2,
        ),
        card={"note": "a small model with random weights, for tests"},
    )
    return Artifact(manifest=manifest, pipeline=pipeline, weights=network.state_dict())


def save_artifact_with(folder: Path, covariates: CovariateSource) -> Path:
    """Write one artifact that reads covariates."""
    made = artifact_with(pipeline_with(covariates))
    artifact.save(folder, made, golden.record(small_model(made, "covariates")))
    return folder


def _short_interest(sessions: NDArray[np.int32]) -> str:
    values = np.exp(np.random.default_rng(1).normal(0, 0.5, (len(SYMBOLS), len(sessions))))
    lines = ["symbol,date,known_from,short_interest"]
    for k in range(0, len(sessions) - 3, 10):
        day, known = format_date(int(sessions[k])), format_date(int(sessions[k + 3]))
        lines += [f"{symbol},{day},{known},{float(values[s, k])!r}" for s, symbol in enumerate(SYMBOLS)]
    return "\n".join(lines) + "\n"


def _market(sessions: NDArray[np.int32]) -> str:
    values = np.random.default_rng(2).normal(2, 0.5, len(sessions))
    days = (format_date(int(session)) for session in sessions)
    rows = (f"{day},{day},{float(value)!r}" for day, value in zip(days, values, strict=True))
    return "\n".join(["date,known_from,credit_spread", *rows]) + "\n"


def _rebalance(sessions: NDArray[np.int32]) -> str:
    lines = ["date,known_from,rebalance"]
    for k in range(40, len(sessions) - 1, 21):
        known = format_date(int(sessions[k - 30]))
        lines += [f"{format_date(int(sessions[k]))},{known},1", f"{format_date(int(sessions[k + 1]))},{known},0"]
    return "\n".join(lines) + "\n"
