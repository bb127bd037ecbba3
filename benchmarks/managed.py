"""Forecasts in C# without Python, compared with Python in-process and with gRPC on this machine.

Networks have the shipped settings and random weights, with one torch thread. Subjects take turns in one run, so that a
busy machine affects all of them. Needs dotnet on the PATH.
"""

import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, final

import torch

from benchmarks.calling.subject import panel_of, save_model, server
from benchmarks.interop.overhead import bound, median_ms, middle, ratio, taking_turns
from benchmarks.interop.program import PROGRAM, build, results_of, turns
from benchmarks.report import Row, at_most, parse_arguments, publish, shown
from predictor import Forecaster, artifact, golden
from predictor.artifact import Artifact
from predictor.inference import use_threads
from predictor.instance import ExplanationQuery, Instance
from predictor.model import Model, ModelIdentity
from predictor.networks import Edges, GraphForecaster, build_network, get_kind
from trainers.demo.market import real_bars

REACHES: Final = {1: 0.20, 32: 0.8, 500: 1.0}
"""Time of C# relative to Python, by number of symbols."""
KINDS: Final = ("lstm", "gru", "tft", "graph")
GRPC_REACH: Final = 0.10
WARM_REACH: Final = 1.5
FIRST_REACH_MS: Final = 150
MEMORY_REACH_MB: Final = 64
ASSEMBLY_REACH_KB: Final = 400


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Size of each measurement."""

    rounds: int
    calls: int
    """Calls per turn with one symbol; fewer with more."""
    starts: int
    """New processes."""
    is_judged: bool


FULL: Final = Lengths(rounds=7, calls=100, starts=9, is_judged=True)
QUICK: Final = Lengths(rounds=1, calls=5, starts=1, is_judged=False)


def save_kind(base: Artifact, kind: str, folder: Path) -> Path:
    """Write `folder/KIND/stock/1`: a network of the kind's default size with random weights and neighbours."""
    named = get_kind(kind)
    config = named.config()
    universe = panel_of(real_bars(["AAPL"]).last(1), max(REACHES)).symbols if named.is_panel_model else ()
    manifest = replace(base.manifest, kind=named, config=config, universe=universe)
    torch.manual_seed(0)
    sizes = replace(base.sizes, nodes=len(universe))
    network = build_network(named, config, sizes=sizes, target=manifest.target, levels=manifest.quantiles).eval()
    if isinstance(network, GraphForecaster):
        ahead = torch.rand(len(universe), len(universe) - 1).argsort(dim=1)[:, : network.neighbours.shape[1]] + 1
        neighbours = (torch.arange(len(universe))[:, None] + ahead) % len(universe)
        network.connect(Edges(neighbours=neighbours, weights=torch.rand(neighbours.shape)))
    made = replace(base, manifest=manifest, weights=network.state_dict())
    identity = ModelIdentity(name="stock", version=1, weights_hash="0" * 64)
    model = Model.assemble(identity, made, device=torch.device("cpu"), max_rows=256)
    path = folder / kind / "stock" / "1"
    artifact.save(path, made, golden.record(model))
    return path


def speed_rows(kind: str, model: Path, folder: Path, lengths: Lengths) -> Iterator[Row]:
    """From bars to forecast in C# and in Python, in turns."""
    with Forecaster.load(model, device="cpu") as forecaster:
        for symbols, reach in REACHES.items():
            bars, file = panel_of(real_bars(["AAPL"]).last(200), symbols), folder / f"{symbols}.csv"
            bars.write_csv(file)
            calls = max(lengths.calls // symbols, 3)
            with turns("managed", model.parents[1], file) as ask:
                times = taking_turns(
                    {
                        "C#": bound(ask, "predict", calls),
                        "Python": lambda: median_ms(lambda: forecaster.predict(bars), calls),  # noqa: B023 - called here
                    },
                    lengths.rounds,
                )
            detail = f"{middle(times, 'C#'):.3f} / {middle(times, 'Python'):.3f} ms, {lengths.rounds} rounds of {calls}"
            name = f"{kind.upper()}, {symbols} symbols, C# / Python in-process"
            yield at_most(name, ratio(times, "C#", "Python"), reach, detail=detail, judged=lengths.is_judged)


def explanation_row(kind: str, model: Path, folder: Path, lengths: Lengths) -> Row:
    """Explanations of all medians of one symbol in C# and in Python, in turns."""
    bars, file, calls = real_bars(["AAPL"]).last(200), folder / "1.csv", max(lengths.calls // 10, 2)
    with Forecaster.load(model, device="cpu") as forecaster, turns("managed", model.parents[1], file) as ask:
        times = taking_turns(
            {
                "C#": bound(ask, "explain", calls),
                "Python": lambda: median_ms(
                    lambda: forecaster.explain(ExplanationQuery(instance=Instance(input=bars))), calls
                ),
            },
            lengths.rounds,
        )
    detail = f"{middle(times, 'C#'):.1f} / {middle(times, 'Python'):.1f} ms, {lengths.rounds} rounds of {calls}"
    return shown(
        f"{kind.upper()}, all medians explained, C# / Python in-process", ratio(times, "C#", "Python"), detail=detail
    )


def grpc_rows(models: Path, file: Path, lengths: Lengths) -> Iterator[Row]:
    """One symbol in C# and over gRPC, in turns; bytes that a call allocates."""
    with (
        server(models) as target,
        turns("grpc", f"http://{target}", file) as far,
        turns("managed", models, file) as near,
    ):
        times = taking_turns(
            {"C#": bound(near, "predict", lengths.calls), "gRPC": bound(far, "predict", lengths.calls)}, lengths.rounds
        )
        allocated = near("predict-bytes", lengths.calls)
    detail = f"{middle(times, 'C#'):.3f} / {middle(times, 'gRPC'):.3f} ms"
    yield at_most(
        "LSTM, 1 symbol, C# / gRPC", ratio(times, "C#", "gRPC"), GRPC_REACH, detail=detail, judged=lengths.is_judged
    )
    yield shown(
        "bytes allocated by a forecast, its result included", allocated, detail=f"mean of {lengths.calls} calls"
    )


def start_rows(model: Path, file: Path, lengths: Lengths) -> Iterator[Row]:
    """New processes: first forecast, memory, and first calls relative to later ones."""
    first = [results_of("first", model, file)[0] for _ in range(lengths.starts)]
    warm = [results_of("warm", model, file)[0]["warm"] for _ in range(lengths.starts)]
    detail, judged = f"median of {lengths.starts} processes", lengths.is_judged
    yield at_most("calls 3 to 20 / later ones, p50", statistics.median(warm), WARM_REACH, detail=detail, judged=judged)
    start, memory = (statistics.median(one[name] for one in first) for name in ("first_ms", "peak_mb"))
    yield at_most("process start to first forecast, ms", start, FIRST_REACH_MS, detail=detail, judged=judged)
    yield at_most("peak memory of one forecast, MB", memory, MEMORY_REACH_MB, detail=detail, judged=judged)
    size = (PROGRAM.parent / "Quantra.Client.Managed.dll").stat().st_size / 1e3
    yield at_most("assembly, kB", size, ASSEMBLY_REACH_KB, detail="no package dependency", judged=judged)


def all_rows(folder: Path, lengths: Lengths) -> Iterator[Row]:
    """All rows."""
    save_model(folder / "trained", real_bars(["AAPL"]))
    base = artifact.load(folder / "trained" / "stock" / "1").artifact
    models = {kind: save_kind(base, kind, folder) for kind in KINDS}
    for kind, model in models.items():
        yield from speed_rows(kind, model, folder, lengths)
        yield explanation_row(kind, model, folder, lengths)
    yield from grpc_rows(models["lstm"].parents[1], folder / "1.csv", lengths)
    yield from start_rows(models["lstm"], folder / "1.csv", lengths)


def main() -> int:
    arguments = parse_arguments(__doc__ or "")
    use_threads(1)
    build()
    with tempfile.TemporaryDirectory() as folder:
        return publish(all_rows(Path(folder), QUICK if arguments.quick else FULL), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
