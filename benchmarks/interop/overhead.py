"""Cost of a C# call over gRPC and embedded, compared with the same call without the client."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.interop.program import turns
from benchmarks.report import Row, at_least, at_most, shown
from predictor import Forecaster
from predictor.bars import BarPanel

STUB_REACH: Final = 1.10
BYTES_REACH: Final = 1.2
EMBEDDED_REACH: Final = 1.2
STREAM_REACH: Final = 1.4
_SECONDS: Final = 2


def grpc_rows(target: str, file: Path, rounds: int, calls: int, *, judged: bool) -> list[Row]:
    """The client against the generated stub that it uses, with the same message to the same server."""
    with turns("grpc", f"http://{target}", file) as ask:
        times = taking_turns({name: bound(ask, name, calls) for name in ("predict", "stub", "bare")}, rounds)
        sizes = taking_turns({name: bound(ask, name, calls) for name in ("predict-bytes", "stub-bytes")}, 3)
        rates = taking_turns({name: bound(ask, name, _SECONDS) for name in ("unary", "stream")}, max(rounds // 3, 1))
    detail = f"{rounds} rounds of {calls} calls"
    return [
        at_most("C# client / its stub, p50", ratio(times, "predict", "stub"), STUB_REACH, detail=detail, judged=judged),
        *(shown(f"{name}, p50, ms", middle(times, name), detail=detail) for name in ("predict", "stub", "bare")),
        at_most(
            "bytes allocated by a call / by its stub",
            ratio(sizes, "predict-bytes", "stub-bytes"),
            BYTES_REACH,
            detail=f"{middle(sizes, 'predict-bytes'):,.0f} / {middle(sizes, 'stub-bytes'):,.0f} bytes",
            judged=judged,
        ),
        at_least(
            "one stream / as many unary calls, 32 in flight, forecasts/s",
            ratio(rates, "stream", "unary"),
            STREAM_REACH,
            detail=f"{middle(rates, 'stream'):.0f} / {middle(rates, 'unary'):.0f} per second",
            judged=judged,
        ),
    ]


def embedded_rows(models: Path, file: Path, rounds: int, calls: int, *, judged: bool) -> list[Row]:
    """The embedded predictor against the same call in Python."""
    bars = BarPanel.read(file)
    with Forecaster.load(models / "stock" / "1", device="cpu") as forecaster, turns("embedded", models, file) as ask:
        times = taking_turns(
            {
                "C#": bound(ask, "predict", calls),
                "Python": lambda: median_ms(lambda: forecaster.predict(bars), calls),
            },
            rounds,
        )
        rates = taking_turns({name: bound(ask, name, _SECONDS) for name in ("unary", "stream")}, max(rounds // 3, 1))
    detail = f"{rounds} rounds of {calls} calls; {middle(times, 'C#'):.2f} / {middle(times, 'Python'):.2f} ms"
    return [
        at_most(
            "embedded / Python in-process, p50",
            ratio(times, "C#", "Python"),
            EMBEDDED_REACH,
            detail=detail,
            judged=judged,
        ),
        shown(
            "embedded, one stream / as many unary calls, 32 in flight",
            ratio(rates, "stream", "unary"),
            detail=f"{middle(rates, 'stream'):.0f} / {middle(rates, 'unary'):.0f} per second",
        ),
    ]


def bound(ask: Callable[[str, int], float], name: str, count: int) -> Callable[[], float]:
    """A function that runs one turn."""
    return lambda: ask(name, count)


def taking_turns(subjects: Mapping[str, Callable[[], float]], rounds: int) -> list[dict[str, float]]:
    """Run each subject in every round; the first round is a warm-up and does not count."""
    found = [{name: subject() for name, subject in subjects.items()} for _ in range(rounds + 1)]
    return found[1:]


def ratio(found: Sequence[Mapping[str, float]], over: str, under: str) -> float:
    """Ratio of two subjects, median over rounds."""
    return statistics.median(one[over] / one[under] for one in found)


def middle(found: Sequence[Mapping[str, float]], name: str) -> float:
    """A subject's number, median over rounds."""
    return statistics.median(one[name] for one in found)


def median_ms(call: Callable[[], object], calls: int) -> float:
    """Median of single calls, in milliseconds."""
    times: list[float] = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)
