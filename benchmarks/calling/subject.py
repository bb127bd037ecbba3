"""The benchmarked model, its requests, and a server process with one torch thread."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from predictor import artifact
from predictor._pb import prediction_pb2 as pb
from predictor.bars import BarPanel
from predictor.dates import to_date
from predictor.features import load_default_features
from predictor.instance import FeatureWindow, Instance
from predictor.windows import Pipeline
from predictor.wire import instances
from trainers.demo.market import real_bars
from trainers.loop import Report
from trainers.stock.recipe import Optimisation, StockRecipe
from trainers.stock.training import train
from trainers.stock.training_data import TrainingMaterial

PREDICT = "/quantra.v1.PredictionService/Predict"
INFER = "/inference.GRPCInferenceService/ModelInfer"
PREDICT_STREAM = "/quantra.v1.PredictionService/PredictStream"


def save_model(folder: Path, bars: BarPanel, seed: int = 0) -> Pipeline:
    """Train `folder/stock/1` for one epoch: its size matters here, its forecasts do not."""
    optimisation = Optimisation(max_epochs=1, patience=1, device="cpu", seed=seed)
    recipe = StockRecipe(calendar="XNYS", optimisation=optimisation)
    made = train(TrainingMaterial(bars, load_default_features()), recipe, folder / "stock" / "1", consume=unseen)
    return artifact.load(made.folder).artifact.pipeline


def unseen(reports: Iterable[Report]) -> Iterator[Report]:
    """Run the training without showing its progress."""
    return iter(reports)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subject:
    """A folder with one model, and as many bars of AAPL as a forecast reads."""

    models: Path
    pipeline: Pipeline
    bars: BarPanel

    def panel(self, symbols: int) -> BarPanel:
        """The bars under `symbols` names; the bars themselves for one."""
        return self.bars if symbols == 1 else panel_of(self.bars, symbols)

    def instance(self) -> pb.Instance:
        """Encode the bars."""
        return instances.encode(Instance(input=self.bars))

    def window_instance(self) -> pb.Instance:
        """Encode the features that the model computes from the bars."""
        return instances.encode(Instance(input=window_of(self.bars, self.pipeline)))

    def asked_with_bars(self, symbols: int = 1) -> bytes:
        """Encode a request with bars."""
        return request_bytes(self.panel(symbols))

    def asked_with_windows(self, symbols: int = 1) -> bytes:
        """Encode a request of a client that computes the features."""
        return request_bytes(window_of(self.panel(symbols), self.pipeline))


def subject_in(folder: Path) -> Subject:
    """Train a model in a folder."""
    pipeline = save_model(folder, real_bars(["AAPL"]))
    return Subject(models=folder, pipeline=pipeline, bars=real_bars(["AAPL"]).last(pipeline.bars_needed))


def panel_of(bars: BarPanel, symbols: int) -> BarPanel:
    """The bars of one symbol under many names, each with scaled prices."""
    factors = np.exp(0.3 * np.random.default_rng(0).standard_normal((symbols, 1)))
    return BarPanel(
        symbols=tuple(f"S{place}" for place in range(symbols)),
        sessions=bars.sessions,
        open=bars.open * factors,
        high=bars.high * factors,
        low=bars.low * factors,
        close=bars.close * factors,
        volume=np.repeat(bars.volume, symbols, axis=0),
        adj_close=None if bars.adj_close is None else bars.adj_close * factors,
        calendar=bars.calendar,
    )


def window_of(bars: BarPanel, pipeline: Pipeline) -> FeatureWindow:
    """The features of the latest window, as a client that computes them sends them."""
    inputs = pipeline.latest_window(pipeline.encode_latest(bars))
    return FeatureWindow(
        symbols=bars.symbols,
        observed=inputs.observed.numpy(),
        known=inputs.known.numpy(),
        static=inputs.static.numpy(),
        mask=inputs.mask.numpy(),
        location=inputs.location.numpy(),
        scale=inputs.scale.numpy(),
        schema_hash=pipeline.features.schema_hash,
        anchor_price=bars.close[:, -1],
        as_of_session=to_date(int(bars.sessions[-1])),
    )


def request_bytes(asked: BarPanel | FeatureWindow) -> bytes:
    """Encode a request with one instance."""
    return pb.PredictRequest(instances=[instances.encode(Instance(input=asked))]).SerializeToString()


@contextmanager
def server(models: Path, *options: str, level: str = "error", log: Path | None = None) -> Generator[str]:
    """Start a server process and yield its address; see `started`."""
    with started(models, *options, level=level, log=log) as ready:
        yield str(ready["target"])


@contextmanager
def started(
    models: Path, *options: str, level: str = "error", log: Path | None = None
) -> Generator[Mapping[str, object]]:
    """Start a server process; yields the JSON of its first line, with its address added as `target`.

    Args:
        models: folder of the models.
        options: further command-line options.
        level: log level.
        log: log file; None logs to this process's stderr.
    """
    command = [sys.executable, "-m", "predictor.server", "--models", models, "--listen", "127.0.0.1:0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (
        Path(os.devnull if log is None else log).open("wb") as errors,
        subprocess.Popen(
            [*command, *options, "--log-level", level],
            stdout=subprocess.PIPE,
            stderr=None if log is None else errors,
            env=environment,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            ready = json.loads(process.stdout.readline())
            yield {**ready, "target": f"127.0.0.1:{ready['port']}"}
        finally:
            process.terminate()
