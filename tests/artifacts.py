"""Small real artifacts for tests: real features fitted on real bars, an LSTM with seeded random weights."""

from functools import cache
from pathlib import Path

import numpy as np
import torch
from market import bokeh_panel

from predictor import artifact, golden
from predictor.artifact import Artifact, BaselineSpec, Conformal, Manifest
from predictor.bars import BarPanel
from predictor.features import FittedFeatures, default_features
from predictor.model import Identity, Model
from predictor.networks import LSTMConfig, Normaliser, Target, TargetKind, build_network, kind_named
from predictor.sessions import SessionCalendar
from predictor.windows import Pipeline

QUANTILES = (0.1, 0.5, 0.9)


def small_models(folder: Path, *, name: str = "small", seed: int = 0, target: Target | None = None) -> Path:
    """Write `folder/NAME/1` and return `folder`, which `quantra serve --models` takes."""
    save_small_artifact(folder / name / "1", seed=seed, target=target)
    return folder


def save_small_artifact(folder: Path, *, seed: int = 0, target: Target | None = None) -> Path:
    """Write one artifact: 60 sessions, default features, horizons 1, 5, 10, 20, calendar XNYS, random weights."""
    made = small_artifact(seed=seed, target=target or Target())
    artifact.save(folder, made, golden.record(small_model(made)))
    return folder


def small_model(made: Artifact, name: str = "small") -> Model:
    """The artifact as a model that answers."""
    identity = Identity(name=name, version=1, weights_hash="0" * 64)
    return Model.assemble(identity, made, device=torch.device("cpu"), max_rows=256)


def small_artifact(*, seed: int = 0, target: Target | None = None, dropout: float = 0.1) -> Artifact:
    """The parts of a small model; its conformal offsets are not zero, so that they can be seen in answers."""
    chosen = target or Target()
    pipeline = small_pipeline(chosen)
    config = LSTMConfig(hidden=8, layers=2, dropout=dropout)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build_network(kind_named("lstm"), config, sizes=pipeline.sizes, target=chosen, levels=QUANTILES)
    horizons = len(chosen.horizons)
    manifest = Manifest(
        kind=kind_named("lstm"),
        config=config,
        target=chosen,
        quantiles=QUANTILES,
        normaliser=pipeline.normaliser,
        encoder_length=pipeline.encoder_length,
        conformal=Conformal(offsets=((-0.05, 0.0, 0.08),) * horizons, effective_samples=(100.0,) * horizons),
        baseline=BaselineSpec(name="train_mean", known=(0.0,) * pipeline.sizes.known, location=0.0, scale=0.02),
        card={"note": "a small model with random weights, for tests"},
    )
    return Artifact(manifest=manifest, pipeline=pipeline, weights=network.state_dict())


def small_pipeline(target: Target) -> Pipeline:
    """Default features, fitted on AAPL up to 2008."""
    centred = target.kind is TargetKind.LOG_VOLATILITY
    return Pipeline(
        features=_fitted(),
        target=target,
        normaliser=Normaliser(centred=centred, decay=1.0 if centred else 0.94),
        calendar=_calendar(),
        encoder_length=60,
    )


def recent_bars(*symbols: str) -> BarPanel:
    """The last 200 sessions of real bars."""
    return bokeh_panel(*(symbols or ("AAPL",))).last(200)


@cache
def _fitted() -> FittedFeatures:
    features = default_features()
    values = features.evaluate(bokeh_panel("AAPL").until(20081231).adjusted())
    return FittedFeatures.fit(features, np.asarray(values))


@cache
def _calendar() -> SessionCalendar:
    return SessionCalendar.from_exchange("XNYS", 20000103, 20180301)
