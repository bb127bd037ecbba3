"""What `speed` times, with the packages of either checkout: one JSON question per line, seconds as the answer.

python -m benchmarks.structure.work MODELS     a folder with an LSTM and a TFT beside the files of `trainings`
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.structure.trainings import BARS
from benchmarks.training.job import Kind, Timing, fastest_optimizer, seconds_per_step
from benchmarks.training.ours import SUBJECT
from predictor import BarPanel, Forecaster
from predictor.client import QuantraClient
from predictor.features import FittedFeatures, default_features

SESSIONS = 140
STEPS = {"mlp": 1500, "lstm": 400}
WARM_STEPS = 200


def walks(symbols: int, days: BarPanel) -> BarPanel:
    """Random walks of so many stocks over the last 140 sessions of real bars."""
    random = np.random.default_rng(0)
    shape = (symbols, SESSIONS)
    close = 50 * np.exp(np.cumsum(0.015 * random.standard_normal(shape), axis=1))
    open_ = close * np.exp(0.01 * random.standard_normal(shape))
    return BarPanel(
        symbols=tuple(f"S{place}" for place in range(symbols)),
        sessions=days.sessions[-SESSIONS:],
        open=open_,
        high=np.maximum(open_, close) * np.exp(0.005 * random.random(shape)),
        low=np.minimum(open_, close) * np.exp(-0.005 * random.random(shape)),
        close=close,
        volume=1e6 * np.exp(random.standard_normal(shape)),
    )


def worked(work: Callable[[], object], calls: int) -> float:
    """Processor time of a call, in all threads of this process."""
    start = time.process_time()
    for _ in range(calls):
        work()
    return (time.process_time() - start) / calls


def waited(work: Callable[[], object], calls: int) -> float:
    """What a caller waits, the median."""
    seconds: list[float] = []
    for _ in range(calls):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def load(artifact: Path) -> None:
    """Load it, the golden check included, and let it go."""
    Forecaster.load(artifact, device="cpu").close()


def step(kind: Kind) -> float:
    """Processor time of a step of the training loop."""
    return seconds_per_step(SUBJECT.train, kind, fastest_optimizer, Timing(warm=WARM_STEPS, steps=STEPS[kind]))


def features_of(panel: BarPanel) -> Callable[[], object]:
    """From the bars of a panel to what a network reads."""
    features = default_features()
    fitted = FittedFeatures.fit(features, features.columns(panel.adjusted()))
    return lambda: fitted.observed(panel.adjusted())


@contextmanager
def served(models: Path) -> Generator[QuantraClient]:
    """A client of a server process, which asks the LSTM."""
    command = [sys.executable, "-m", "predictor.server", "--models", str(models), "--log-level", "error"]
    with subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            port = json.loads(process.stdout.readline())["port"]
            with QuantraClient(f"127.0.0.1:{port}", model="lstm") as client:
                yield client
        finally:
            process.terminate()


def works(models: Path, lstm: Forecaster, tft: Forecaster, client: QuantraClient) -> Mapping[str, Callable[[], float]]:
    """By the names of the rows."""
    bars = BarPanel.read(models.parent / BARS).select(["AAPL"]).last(200)
    many, some = walks(1000, bars), walks(256, bars)
    one_observed, many_observed = features_of(walks(1, bars)), features_of(walks(500, bars))
    return {
        "LSTM, predict, 1 window": lambda: worked(lambda: lstm.predict(bars), 60),
        "LSTM, predict, 1000 windows": lambda: worked(lambda: lstm.predict(many), 2),
        "LSTM, predict over gRPC, p50": lambda: waited(lambda: client.predict(bars), 80),
        "LSTM, explain": lambda: worked(lambda: lstm.feature_importance(bars), 10),
        "LSTM, load": lambda: worked(partial(load, models / "lstm" / "1"), 2),
        "TFT, predict, 1 window": lambda: worked(lambda: tft.predict(bars), 30),
        "TFT, predict, 256 windows": lambda: worked(lambda: tft.predict(some), 2),
        "TFT, explain": lambda: worked(lambda: tft.feature_importance(bars), 3),
        "features, 1 symbol": lambda: worked(one_observed, 100),
        "features, 500 symbols": lambda: worked(many_observed, 3),
        "training loop, tiny MLP, a step": lambda: step("mlp"),
        "training loop, tiny LSTM, a step": lambda: step("lstm"),
    }


def main() -> int:
    """Answer until there are no more questions; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    torch.set_num_threads(1)
    models = Path(sys.argv[1])
    lstm, tft = (Forecaster.load(models / name / "1", device="cpu") for name in ("lstm", "tft"))
    with lstm, tft, served(models) as client:
        timed = works(models, lstm, tft, client)
        for line in sys.stdin:
            question = json.loads(line)
            told = list(timed) if question["what"] == "names" else timed[question["what"]]()
            print(json.dumps(told), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
