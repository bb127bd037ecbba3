"""Time of a step in our loop against hand-written loops."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from torch import nn
from torch.optim import Optimizer

from benchmarks.report import Row, at_most, shown
from benchmarks.training import hand, ours
from benchmarks.training.job import (
    RATE,
    Job,
    Kind,
    Timing,
    TinyMlp,
    default_optimizer,
    fastest_optimizer,
    seconds_per_step,
)
from trainers.loop import adamw

KINDS: tuple[Kind, ...] = ("mlp", "lstm")
TITLES = {"mlp": "tiny MLP, SGD", "lstm": "tiny LSTM, AdamW"}
PLAIN_REACH, FASTEST_REACH = 0.90, 1.10
STEPS = {"mlp": 1500, "lstm": 400}
WARM = 200


@final
@dataclass(frozen=True, slots=True)
class LoopVariant:
    """A loop and its optimizer."""

    train: Callable[[Job], None]
    optimizer: Callable[[nn.Module], Optimizer]


def own_optimizer(network: nn.Module) -> Optimizer:
    """The optimizer of `trainers.loop`, which has an AdamW only; the perceptron gets torch's fastest SGD."""
    return fastest_optimizer(network) if isinstance(network, TinyMlp) else adamw(network.parameters(), lr=RATE)


VARIANTS = {
    "plain": LoopVariant(hand.train, default_optimizer),
    "ours": LoopVariant(ours.train, default_optimizer),
    "fastest": LoopVariant(hand.train_leanly, fastest_optimizer),
    "ours, own optimizer": LoopVariant(ours.train, own_optimizer),
}


def rows(*, quick: bool) -> list[Row]:
    """Rows for all ratios of both networks, and the microseconds behind them."""
    return [row for kind in KINDS for row in _rows_of(kind, quick=quick)]


def ratio(seconds: dict[str, list[float]], of: str, to: str) -> float:
    """Median of the rounds' ratios."""
    return statistics.median(a / b for a, b in zip(seconds[of], seconds[to], strict=True))


def _rows_of(kind: Kind, *, quick: bool) -> list[Row]:
    rounds = 2 if quick else 15
    seconds = _seconds(kind, rounds=rounds, steps=STEPS[kind] // (4 if quick else 1))
    title, judged = TITLES[kind], not quick
    detail = f"all guards; clipping, scheduler, running loss; per-round median of {rounds}"
    against_fastest = at_most(
        f"{title}: ours / fastest loop by hand",
        ratio(seconds, "ours, own optimizer", "fastest"),
        FASTEST_REACH,
        detail="lean clip, no guards; both with the fastest optimizer",
        judged=judged,
    )
    own = at_most(
        f"{title}: ours with trainers.loop.adamw / plain loop",
        ratio(seconds, "ours, own optimizer", "plain"),
        PLAIN_REACH,
        detail="fused, against torch's default in the plain loop",
        judged=judged,
    )
    return [
        at_most(
            f"{title}: ours / plain loop",
            ratio(seconds, "ours", "plain"),
            PLAIN_REACH,
            detail=f"the same optimizer; {detail}",
            judged=judged,
        ),
        *([own] if kind == "lstm" else []),
        against_fastest,
        *(
            shown(f"{title}: {name}, us per step", 1e6 * statistics.median(values), detail="processor time")
            for name, values in seconds.items()
        ),
    ]


def _seconds(kind: Kind, *, rounds: int, steps: int) -> dict[str, list[float]]:
    timing = Timing(warm=WARM, steps=steps)
    seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(rounds):
        for name, variant in VARIANTS.items():
            seconds[name].append(seconds_per_step(variant.train, kind, variant.optimizer, timing))
    return seconds
