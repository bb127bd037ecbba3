"""Trainings on real bars by the command line, in either checkout: small networks, one epoch, one thread."""

import csv
import gzip
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Final

from benchmarks.structure.checkout import Checkout, ProgramError

SYMBOLS: Final = ("AAPL", "GOOG", "IBM", "MSFT")
FIRST_DAY: Final = "2007-01-01"
BARS, MOOD, PHASE, STATIC = "bars.csv", "mood.csv", "phase.csv", "static.csv"

_COLUMNS: Final = {
    "symbol": "Ticker",
    "date": "Date",
    "open": "Open",
    "high": "High",
    "low": "Low",
    "close": "Close",
    "volume": "Volume",
    "adj_close": "Adj Close",
}
_SMALL: Final = ("--epochs", "1", "--hidden", "8")
_DEVICE: Final = ("--device", "cpu", "--threads", "1", "--seed", "7")

ARTIFACTS: Final[Mapping[str, Sequence[str]]] = {
    "lstm": ("--model", "lstm", *_SMALL),
    "gru": ("--model", "gru", *_SMALL),
    "hybrid": ("--model", "hybrid", *_SMALL),
    "tft": ("--model", "tft", *_SMALL),
    "graph": ("--model", "graph", *_SMALL, "--neighbours", "2"),
    "har": ("--model", "har"),
    "garch": ("--model", "garch"),
    "lstm-window": ("--model", "lstm", *_SMALL, "--scale", "window", "--lag", "1"),
    "gru-mix": ("--model", "gru", *_SMALL, "--scale", "mix", "--horizons", "1,5"),
    "tft-volatility": ("--model", "tft", *_SMALL, "--target", "log-volatility"),
    "har-volatility": ("--model", "har", "--target", "log-volatility"),
    "lstm-alpha158": ("--model", "lstm", *_SMALL, "--features", "alpha158"),
    "tft-covariates": (
        *("--model", "tft", *_SMALL, "--covariates", MOOD, "--covariates", PHASE, "--known", "phase"),
        *("--static", STATIC),
    ),
}
"""What is trained: every kind of network, every kind of units, both targets, and what may be read beside bars."""


def write_files(folder: Path) -> None:
    """Write bars of four stocks from 2007 to 2013, and made-up covariates of the same days and static values."""
    packed = resources.files("bokeh_sampledata").joinpath("_data/stocks.csv.gz").read_bytes()
    rows = [
        row
        for row in csv.DictReader(gzip.decompress(packed).decode().splitlines())
        if row["Ticker"] in SYMBOLS and row["Date"] >= FIRST_DAY
    ]
    days = sorted({row["Date"] for row in rows})
    _write(folder / BARS, tuple(_COLUMNS), [[row[name] for name in _COLUMNS.values()] for row in rows])
    mood = [[day, day, math.sin(n / 9)] for n, day in enumerate(days)]
    phase = [[day, FIRST_DAY, n % 3] for n, day in enumerate(days[::5])]
    _write(folder / MOOD, ("date", "known_from", "mood"), mood)
    _write(folder / PHASE, ("date", "known_from", "phase"), phase)
    _write(folder / STATIC, ("symbol", "sector", "size"), [[s, "AB"[n % 2], n] for n, s in enumerate(SYMBOLS)])


def train(checkout: Checkout, folder: Path, name: str, settings: Sequence[str]) -> Path:
    """One artifact, as `folder/models/NAME/1`; `folder` holds the files that `write_files` writes.

    Raises:
        ProgramError: The training failed.
    """
    out = Path("models") / name / "1"
    checkout.run([*_command(out), *settings], folder)
    return folder / out


def join(checkout: Checkout, folder: Path, name: str, members: Sequence[str]) -> Path:
    """An ensemble of artifacts that `train` has made.

    Raises:
        ProgramError: They do not belong together.
    """
    out = Path("models") / name / "1"
    artifacts = [str(Path("models") / member / "1") for member in members]
    checkout.run(["-m", "trainers.cli", "ensemble", "--bars", BARS, "--out", str(out), *artifacts], folder)
    return folder / out


def train_half(checkout: Checkout, folder: Path, name: str, settings: Sequence[str], at: tuple[int, int]) -> None:
    """A training that is told to stop within an epoch; it leaves checkpoints and no artifact.

    Args:
        checkout: Whose code trains.
        folder: As for `train`.
        name: Of the artifact that would come.
        settings: Flags of the training.
        at: The epoch and the window after which it is told to, both from 0.

    Raises:
        ProgramError: It ended before, or left no checkpoint of within the epoch.
    """
    command = [sys.executable, *_command(Path("models") / name / "1"), *settings, "--json"]
    with subprocess.Popen(
        command, cwd=folder, env=checkout.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            report = json.loads(line)
            if report["kind"] == "window" and (report["epoch"], report["window"]) == at:
                os.kill(process.pid, signal.SIGTERM)
                break
        process.communicate()
    reached = _last_checkpoint(folder / "models" / name / "1.run")
    if reached <= (at[0], 0) or (folder / "models" / name / "1").exists():
        raise ProgramError(f"the training {name} was to stop with a checkpoint in epoch {at[0]}; its last is {reached}")


def resume(checkout: Checkout, folder: Path, name: str, settings: Sequence[str]) -> Path:
    """The artifact that comes of a training that `train_half` has stopped.

    Raises:
        ProgramError: The training failed.
    """
    return train(checkout, folder, name, [*settings, "--resume"])


def _last_checkpoint(run: Path) -> tuple[int, int]:
    """Epoch and window, both from 0, at which a training would go on; 0, 0 if it has saved nothing."""
    reports = map(json.loads, (run / "reports.jsonl").read_text(encoding="utf-8").splitlines())
    saved = [(report["epoch"], report["window"]) for report in reports if report["kind"] == "checkpoint"]
    return saved[-1] if saved else (0, 0)


def _command(out: Path) -> list[str]:
    return ["-m", "trainers.cli", "train", "stock", "--bars", BARS, "--calendar", "XNYS", *_DEVICE, "--out", str(out)]


def _write(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
