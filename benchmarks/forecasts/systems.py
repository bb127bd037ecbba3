"""The trained systems, and their trainings in separate processes with saved results."""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np

from benchmarks.environments import FORECASTERS, ROOT, NoEnvironmentError, python_of
from benchmarks.forecasts.protocol import HINDSIGHT
from benchmarks.forecasts.task import FloatArray, Task

SOURCES: Final = (
    "benchmarks/forecasts/ours.py",
    "benchmarks/forecasts/protocol.py",
    "benchmarks/forecasts/scales.py",
    "benchmarks/forecasts/task.py",
    "python/predictor/networks/*.py",
    "python/trainers/loop/**/*.py",
    "python/trainers/stock/network_forecasts.py",
    "python/trainers/stock/evaluation/calibration.py",
    "python/trainers/stock/recipe.py",
    "python/trainers/stock/scale.py",
    "python/trainers/stock/initialization.py",
    "python/trainers/stock/objectives.py",
)
"""Sources of our networks' results; a peer's results depend on its script, the protocol and its version."""
BEST_SOURCES: Final = (
    "benchmarks/forecasts/best.py",
    "benchmarks/forecasts/indices.py",
    "benchmarks/forecasts/protocol.py",
    "python/predictor/**/*.py",
    "python/trainers/**/*.py",
)
BUDGET: Final = 300
"""Seconds of one thread for a system that selects among models."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A model to train.

    Attributes:
        name: name in tables.
        module: its script.
        model: the script's model.
        library: key of `FORECASTERS`; empty for ours.
        budget: seconds that it may train for; 0 for a network, which has a number of steps.
    """

    name: str
    module: str
    model: str
    library: str = ""
    budget: int = 0

    @property
    def is_peer(self) -> bool:
        """Whether the model is another library's."""
        return bool(self.library)

    @property
    def slug(self) -> str:
        """The name for file names."""
        return f"{self.library or 'ours'}-{self.model}"


def _ours(name: str, model: str) -> System:
    return System(name=name, module="benchmarks.forecasts.ours", model=model)


def _peer(library: str, model: str, how: str) -> System:
    module = f"benchmarks.peers.forecast_with_{library.replace('-', '_')}"
    return System(name=f"{library} {model.upper()}, {how}", module=module, model=model, library=library)


OUR_TFT: Final = _ours("our TFT", "tft")
OUR_SELECTED_TFT: Final = _ours("our TFT, epoch selected", "tft-selected")
OUR_SELECTED: Final = (
    OUR_SELECTED_TFT,
    _ours("our LSTM, epoch selected", "lstm-selected"),
    _ours("our GRU, epoch selected", "gru-selected"),
    _ours("our hybrid, epoch selected", "hybrid-selected"),
)
"""Our systems, trained as artifacts are."""
OURS: Final = (
    OUR_TFT,
    _ours("our LSTM", "lstm"),
    _ours("our GRU", "gru"),
    _ours("our hybrid", "hybrid"),
    *OUR_SELECTED,
)
OUR_BEST: Final = System(name="our best", module="benchmarks.forecasts.best", model="best", budget=BUDGET)
"""It forecasts the first step only."""
PEERS: Final = (
    _peer("darts", "tft", "instance norm"),
    _peer("gluonts", "tft", "window scaler"),
    _peer("pytorch-forecasting", "tft", "encoder norm"),
    _peer("neuralforecast", "tft", "robust scaler"),
    _peer("neuralforecast", "lstm", "robust scaler"),
    System(
        name="AutoGluon, medium quality",
        module="benchmarks.peers.forecast_with_autogluon",
        model="medium_quality",
        library="autogluon",
        budget=BUDGET,
    ),
)


class FailedError(Exception):
    """A training run failed; the message holds the last line of its output."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedQuantiles:
    """Quantiles [N, H, Q] of the test windows from one training.

    Attributes:
        system: the trained system.
        seed: seed of the training.
        plain: quantiles as trained.
        variants: quantiles after our calibrations, `calibrated` and `adaptive`; empty for a peer.
        hindsight: improvement on the best member in hindsight with its interval; empty for a single model.
    """

    system: System
    seed: int
    plain: FloatArray
    variants: Mapping[str, FloatArray]
    hindsight: tuple[float, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of the trainings of a task.

    Attributes:
        trained: all trainings, ordered by system and seed.
        failed: peers that could not be installed or trained, with the error.
    """

    trained: Sequence[TrainedQuantiles]
    failed: Mapping[System, str]


@final
class Trainings:
    """The trainings of a task, saved in a folder, so that an interrupted run continues.

    Args:
        task: the task.
        folder: folder of answers; answers of another task, budget or source are ignored.
        steps: optimizer steps.
    """

    def __init__(self, task: Task, folder: Path, *, steps: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._steps = steps
        self._folder = folder
        # computed once, so that edits during the run do not change the answers' names
        self._sources: dict[System, str] = {}
        self._task = folder / f"{task.name}-{_digest_of_task(task)}.npz"
        if not self._task.is_file():
            partial = self._task.with_suffix(".part.npz")
            task.save(partial)
            partial.replace(self._task)

    def of(self, systems: Sequence[System], seeds: Sequence[int], *, jobs: int) -> Outcome:
        """Train all missing systems and seeds.

        Raises:
            FailedError: One of ours failed.
        """
        ready, failed = self._ready(systems)
        missing = [(system, seed) for seed in seeds for system in ready if not self._answer(system, seed).is_file()]
        with ThreadPoolExecutor(jobs) as pool:
            running = {pool.submit(self._train, *one, ready[one[0]]): one[0] for one in missing}
            for done, future in enumerate(as_completed(running), start=1):
                error = future.exception()
                if isinstance(error, FailedError) and running[future].is_peer:
                    failed[running[future]] = str(error)
                    print(f"[{done}/{len(missing)}] {error}", file=sys.stderr)
                else:
                    print(f"[{done}/{len(missing)}] {future.result()}", file=sys.stderr)
        complete = [system for system in ready if system not in failed]
        return Outcome(trained=[self._read(system, seed) for system in complete for seed in seeds], failed=failed)

    @staticmethod
    def _ready(systems: Sequence[System]) -> tuple[dict[System, Path], dict[System, str]]:
        """The interpreter of each system, and the errors of those without one."""
        ready: dict[System, Path] = {}
        failed: dict[System, str] = {}
        for system in systems:
            try:
                ready[system] = python_of(system.library) if system.is_peer else Path(sys.executable)
            except NoEnvironmentError as error:
                failed[system] = str(error)
        return ready, failed

    def _source(self, system: System) -> str:
        if system not in self._sources:
            self._sources[system] = _digest_of_source(system)
        return self._sources[system]

    def _answer(self, system: System, seed: int) -> Path:
        source = self._source(system)
        return self._folder / f"{self._task.stem}-{system.slug}-{system.budget or self._steps}-{source}-{seed}.npz"

    def _train(self, system: System, seed: int, python: Path) -> str:
        started, answer = time.perf_counter(), self._answer(system, seed)
        question = [str(self._task), str(answer), system.model, str(seed), str(system.budget or self._steps)]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "python")]),
            "OMP_NUM_THREADS": "1",
        }
        ran = subprocess.run(
            [str(python), "-m", system.module, *question],
            cwd=self._folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode or not answer.is_file():
            last_line = (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
            raise FailedError(f"{system.name}, seed {seed}: {last_line}")
        return f"{self._task.stem.partition('-')[0]}: {system.name}, seed {seed}, {time.perf_counter() - started:.0f} s"

    def _read(self, system: System, seed: int) -> TrainedQuantiles:
        with np.load(self._answer(system, seed)) as kept:
            variants = {name: kept[name] for name in kept.files if name not in {"plain", HINDSIGHT}}
            hindsight = tuple(kept[HINDSIGHT].tolist()) if HINDSIGHT in kept.files else ()
            return TrainedQuantiles(
                system=system, seed=seed, plain=kept["plain"], variants=variants, hindsight=hindsight
            )


def by_system(trained: Iterable[TrainedQuantiles]) -> Mapping[System, list[TrainedQuantiles]]:
    """All trainings of each system, by seed."""
    found: dict[System, list[TrainedQuantiles]] = {}
    for one in trained:
        found.setdefault(one.system, []).append(one)
    return found


def _digest_of_task(task: Task) -> str:
    digest = hashlib.sha256(repr((task.starts, task.encoder, task.horizon)).encode())
    for values in (task.target, task.observed, task.known, task.static):
        digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()[:8]


def _digest_of_source(system: System) -> str:
    """Digest of all files that a training run depends on."""
    script = ROOT / f"{system.module.replace('.', '/')}.py"
    if system.is_peer:
        return _digest([script, Path(__file__).with_name("protocol.py")], FORECASTERS[system.library][0])
    patterns = BEST_SOURCES if system.budget else SOURCES
    return _digest(sorted(path for pattern in patterns for path in ROOT.glob(pattern)), "")


def _digest(paths: Sequence[Path], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]
