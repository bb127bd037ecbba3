"""What C# adds to a forecast: over gRPC beside Python's client and a bare call, and in-process beside Python itself.

The model is the shipped LSTM, trained for one epoch on AAPL's real bars, with one torch thread. Each figure is the
median over rounds of a turn's median; the subjects take turns, so a busy machine hits all of them. The bare call is
gRPC alone, from C# to a server in a process of its own, with as many bytes each way. Needs dotnet on the PATH.
"""

import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import torch

from benchmarks.calling.bare import run_echo
from benchmarks.calling.subject import save_model, server
from benchmarks.report import Row, at_most, parse_arguments, publish, shown
from predictor import Forecaster
from predictor.bars import BarPanel
from predictor.client import QuantraClient
from predictor.forecast import Forecast
from predictor.instance import Instance
from predictor.wire import forecasts, instances
from trainers.demo.market import real_bars

PROJECT: Final = Path(__file__).parents[1] / "dotnet" / "benchmarks" / "Quantra.Benchmark"
SPAWN: Final = multiprocessing.get_context("spawn")
EMBEDDED_REACH: Final = 1.5
GRPC_REACH: Final = 1.1
"""C# may be a tenth slower than Python's client."""


def main() -> int:
    """Measure and report."""
    arguments = parse_arguments(__doc__ or "")
    rounds, calls = (3, 20) if arguments.quick else (15, 60)
    torch.set_num_threads(1)
    build()
    bars = real_bars(["AAPL"]).last(200)
    with tempfile.TemporaryDirectory() as folder:
        models, file = Path(folder) / "models", Path(folder) / "bars.csv"
        save_model(models, real_bars(["AAPL"]))
        bars.write_csv(file)
        asked = BarPanel.read(file)
        rows = [
            *over_grpc(models, file, asked, rounds, calls, judged=not arguments.quick),
            *in_process(models, file, asked, rounds, calls, judged=not arguments.quick),
        ]
    return publish(rows, arguments.json)


def build() -> None:
    """Build the C# side once, optimised."""
    command = ["dotnet", "build", "-c", "Release", "-v", "quiet", "-nologo", "-nodeReuse:false"]
    subprocess.run([*command, "-p:UseSharedCompilation=false", str(PROJECT)], check=True, env=environment())


def environment() -> dict[str, str]:
    """One thread for torch, and this Python for C#."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "QUANTRA_PYTHON": sys.executable, "QUANTRA_VENV": sys.prefix}


def over_grpc(models: Path, file: Path, bars: BarPanel, rounds: int, calls: int, *, judged: bool) -> list[Row]:
    """C#'s client beside Python's, and beside gRPC alone."""
    with server(models) as target, QuantraClient(target) as client:
        question, answer = _bytes_of(bars, client.predict(bars))
        with echo_address(answer) as bare, csharp("grpc", f"http://{target}", file, f"http://{bare}", question) as ask:
            found = taking_turns(
                {
                    "c#": lambda: ask("predict", calls),
                    "python": lambda: median_ms(lambda: client.predict(bars), calls),
                    "echo": lambda: ask("echo", calls),
                },
                rounds,
            )
    size = f"{question} bytes in, {len(answer)} out, {rounds} rounds of {calls} calls"
    return [
        shown("C# client, bars, ms", found["c#"], detail=size),
        shown("Python client, bars, ms", found["python"], detail=size),
        shown("bare call from C#, ms", found["echo"], detail=size),
        at_most("C# client / Python client", found["c#"] / found["python"], GRPC_REACH, detail=size, judged=judged),
    ]


def in_process(models: Path, file: Path, bars: BarPanel, rounds: int, calls: int, *, judged: bool) -> list[Row]:
    """The embedded predictor beside the same call in Python alone."""
    forecaster = Forecaster.load(models / "stock" / "1", device="cpu")
    with csharp("embedded", models, file) as ask:
        found = taking_turns(
            {
                "c#": lambda: ask("predict", calls),
                "python": lambda: median_ms(lambda: forecaster.predict(bars), calls),
            },
            rounds,
        )
    detail = f"{rounds} rounds of {calls} calls"
    return [
        shown("C# embedded, bars, ms", found["c#"], detail=detail),
        shown("Python in-process, bars, ms", found["python"], detail=detail),
        at_most("C# embedded / Python", found["c#"] / found["python"], EMBEDDED_REACH, detail=detail, judged=judged),
    ]


def _bytes_of(bars: BarPanel, forecast: Forecast) -> tuple[int, bytes]:
    """How long the question is, and the answer."""
    return instances.encode(Instance(input=bars)).ByteSize(), forecasts.encode(forecast).SerializeToString()


@contextmanager
def echo_address(answer: bytes) -> Generator[str]:
    """A bare server process that gives `answer` to every call."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=run_echo, args=(answer, there), daemon=True)
    process.start()
    try:
        yield f"127.0.0.1:{here.recv()}"
    finally:
        process.terminate()
        process.join()


@contextmanager
def csharp(*arguments: object) -> Generator[Callable[[str, int], float]]:
    """The C# program; ask it for a turn of calls, and get their median in milliseconds."""
    program = PROJECT / "bin" / "Release" / "net10.0" / "Quantra.Benchmark.dll"
    command = ["dotnet", str(program), *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, told = process.stdin, process.stdout

        def turn(name: str, calls: int) -> float:
            asked.write(f"{name} {calls}\n")
            asked.flush()
            return float(told.readline())

        yield turn
        asked.close()


def taking_turns(subjects: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Each subject's median over rounds; the first round, in which everything is cold, does not count."""
    turns = [{name: subject() for name, subject in subjects.items()} for _ in range(rounds + 1)]
    return {name: statistics.median(turn[name] for turn in turns[1:]) for name in subjects}


def median_ms(call: Callable[[], object], calls: int) -> float:
    """Median of single calls, milliseconds."""
    times: list[float] = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
