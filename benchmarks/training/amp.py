"""Time of a window and peak memory in 16 bits against float32, on a CUDA device."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, final

import torch
from torch import Tensor, nn

from benchmarks.report import Row, at_least, at_most, shown, unmeasured
from trainers.loop import Loop, Loss, Phase, ResidentSource, Source, StepReport, adamw

SPEED, MEMORY = "16 bits / float32: windows/s", "16 bits / float32: peak memory"
SPEED_REACH, MEMORY_REACH = 2.5, 0.55
HIDDEN, LAYERS, FEATURES, STEPS, BATCH = 1024, 2, 64, 60, 256
WARM = 10


@final
class WideLstm(nn.Module):
    """An LSTM wide enough for the matrix units of a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(FEATURES, HIDDEN, LAYERS, batch_first=True)
        self.head = nn.Linear(HIDDEN, 1)

    def forward(self, x: Tensor) -> Tensor:
        """float32 [N, T, F] to [N, 1]."""
        states, _ = self.recurrent(x)
        return self.head(states[:, -1])


@final
@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of a window, and its peak memory in bytes."""

    seconds: float
    peak: int


def rows(*, quick: bool) -> list[Row]:
    """Both ratios, unmeasured without a CUDA device."""
    if not torch.cuda.is_available():
        why = "no CUDA device"
        return [
            unmeasured(SPEED, why, reach=f">= {SPEED_REACH:g}"),
            unmeasured(MEMORY, why, reach=f"<= {MEMORY_REACH:g}"),
        ]
    windows = 20 if quick else 100
    draw = torch.Generator().manual_seed(0)
    samples = BATCH * (WARM + windows)
    data = (torch.randn(samples, STEPS, FEATURES, generator=draw), torch.randn(samples, 1, generator=draw))
    rounds = [(_cost("fp32", data), _cost("auto", data)) for _ in range(2 if quick else 7)]
    speed = statistics.median(full.seconds / half.seconds for full, half in rounds)
    memory = statistics.median(half.peak / full.peak for full, half in rounds)
    detail = f"LSTM of {LAYERS} x {HIDDEN}, {BATCH} x {STEPS} x {FEATURES}; {torch.cuda.get_device_name()}"
    return [
        at_least(SPEED, speed, SPEED_REACH, detail=detail, judged=not quick),
        at_most(MEMORY, memory, MEMORY_REACH, detail=detail, judged=not quick),
        *cost_rows(rounds, "window", detail),
    ]


def cost_rows(rounds: Sequence[tuple[Cost, Cost]], unit: str, detail: str) -> Iterator[Row]:
    """The numbers behind the ratios, per window or step."""
    for name, costs in zip(("float32", "16 bits"), zip(*rounds, strict=True), strict=True):
        yield shown(f"{name}: ms per {unit}", 1e3 * statistics.median(one.seconds for one in costs), detail=detail)
        yield shown(f"{name}: peak memory, MiB", statistics.median(one.peak for one in costs) / 2**20, detail=detail)


def measure_cost(loop: Loop[Any], source: Source[Any], *, warm: int, windows: int) -> Cost:
    """Train one epoch of warm-up windows and these; float32 runs without TF32."""
    started = 0.0
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False), loop.running() as run:
        torch.cuda.reset_peak_memory_stats()
        for report in run.epochs(source, max_epochs=1):
            if isinstance(report, StepReport) and report.window == warm - 1:
                torch.cuda.synchronize()
                started = perf_counter()
        torch.cuda.synchronize()
    return Cost((perf_counter() - started) / windows, torch.cuda.max_memory_allocated())


def _cost(precision: str, data: tuple[Tensor, Tensor]) -> Cost:
    """Train with all guards."""
    torch.manual_seed(0)
    network = WideLstm()

    def loss(batch: tuple[Tensor, Tensor]) -> Loss:
        return Loss(nn.functional.mse_loss(network(batch[0]).float(), batch[1]), len(batch[0]))

    loop = Loop(
        [Phase("main", loss, network.parameters(), adamw(network.parameters(), lr=1e-3))],
        modules={"network": network},
        device="cuda",
        precision=precision,
    )
    windows = len(data[0]) // BATCH - WARM
    return measure_cost(loop, ResidentSource.of(data, batch_size=BATCH), warm=WARM, windows=windows)
