"""Cost of explanations against Captum's integrated gradients, at the same completeness.

The shipped code trains the shipped LSTM on the demo's real bars, in units of HAR (the default) and in units of the
window. The models explain windows of their test years. Captum runs on the same view, path and output, one call per
target, all steps in one batch, with the fewest `n_steps` that bring the gap of every window and target below 1 %.
The search for that number does not count. Both report their gap. Times are of one thread, medians of interleaved
rounds.
"""

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from captum.attr import IntegratedGradients
from torch import Tensor

from benchmarks.report import Row, at_most, interleaved_medians, parse_arguments, publish, shown
from predictor import artifact
from predictor.artifact import Artifact
from predictor.bars import BarPanel
from predictor.call_context import NEVER
from predictor.explain import Baseline, Explainer, build_attribution_view
from predictor.features import load_default_features
from predictor.inference import freeze
from predictor.model import build_output_map
from predictor.networks import Inputs
from trainers.demo.market import CALENDAR, real_bars
from trainers.loop import Report
from trainers.stock.data import History, TrainingWindows
from trainers.stock.recipe import Optimisation, Scale, StockRecipe
from trainers.stock.splits import DataSplits
from trainers.stock.training import train
from trainers.stock.training_data import TrainingMaterial

Point = tuple[int, int]

GAP_REACH = 0.01
MANY_REACH, ONE_REACH = 0.6, 1.0
FLOOR = 0.05
"""The floor of `Contributions.relative_gap`."""
MAX_ROWS = 256
SCALES: tuple[Scale, ...] = ("har", "window")
COUNTED = 200
"""Number of windows whose nodes are counted."""
POINTS: list[Point] = list(product(range(4), range(3)))
MEDIAN_OF_FIVE_DAYS: list[Point] = [(1, 1)]


def no_progress(reports: Iterable[Report]) -> Iterator[Report]:
    yield from reports


def trained(bars: BarPanel, recipe: StockRecipe) -> Artifact:
    with tempfile.TemporaryDirectory() as folder:
        made = train(
            TrainingMaterial(bars, load_default_features()), recipe, Path(folder) / "model", consume=no_progress
        )
        return artifact.load(made.folder).artifact


def test_windows(bars: BarPanel, made: Artifact, recipe: StockRecipe, rows: int) -> Inputs:
    """Windows spread evenly over the test years."""
    history = History(bars, made.pipeline)
    every = history.windows(DataSplits.by_shares(bars.sessions, recipe.shares).require_test())
    chosen = np.linspace(0, len(every) - 1, rows).astype(np.int64)
    return history.gather(TrainingWindows(symbols=every.symbols[chosen], positions=every.positions[chosen])).inputs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CaptumPeer:
    """Captum on the same function and path."""

    captum: IntegratedGradients
    ends: tuple[Tensor, ...]
    starts: tuple[Tensor, ...]
    mask: Tensor
    floors: Tensor
    """[N, H]"""

    @classmethod
    def of(cls, made: Artifact, inputs: Inputs) -> "CaptumPeer":
        """Set Captum up on a separate model, for these windows."""
        view, output = build_attribution_view(freeze(made.network())), build_output_map(made.manifest)
        own = made.manifest.baseline

        def forecast(*parts: Tensor) -> Tensor:
            observed, known, location, scale, offsets, mask = parts
            static = observed.new_zeros(len(observed), 0)
            units = view(Inputs(observed, known, static, mask, location, scale))
            return output.map_tensors(units, location, scale, offsets).flatten(1)

        ends = (
            inputs.observed,
            inputs.known,
            inputs.location,
            inputs.scale,
            output.offsets.expand(len(inputs.mask), -1, -1),
        )
        starts = (
            torch.zeros_like(inputs.observed),
            torch.tensor(own.known, dtype=torch.float32).expand_as(inputs.known),
            inputs.location.new_tensor(own.location).expand_as(inputs.location),
            inputs.scale.new_tensor(own.scale).expand_as(inputs.scale),
            torch.zeros_like(ends[-1]),
        )
        floors = FLOOR * inputs.scale * output.spread
        return cls(captum=IntegratedGradients(forecast), ends=ends, starts=starts, mask=inputs.mask, floors=floors)

    def attribute(self, points: Sequence[Point], steps: int) -> list[tuple[tuple[Tensor, ...], Tensor]]:
        """Attribute each target in one call: the parts, and their sum less the difference of the forecasts."""
        return [
            self.captum.attribute(
                self.ends,
                self.starts,
                target=h * 3 + q,
                additional_forward_args=(self.mask,),
                n_steps=steps,
                return_convergence_delta=True,
            )
            for h, q in points
        ]

    def largest_gap(self, points: Sequence[Point], steps: int) -> float:
        """Gap of the worst window and target."""
        largest = 0.0
        for (h, _), (parts, delta) in zip(points, self.attribute(points, steps), strict=True):
            total = sum(part.double().reshape(len(part), -1).sum(1) for part in parts)
            difference = (total - delta).abs()
            largest = max(largest, float((delta.abs() / torch.maximum(difference, self.floors[:, h])).max()))
        return largest

    def fewest_steps(self, points: Sequence[Point]) -> int:
        """The fewest steps that make the worst gap small enough."""
        return next(steps for steps in range(2, 257) if self.largest_gap(points, steps) < GAP_REACH)


def our_explainer(made: Artifact) -> Explainer:
    own = made.manifest.baseline
    baseline = Baseline(
        name=own.name,
        known=np.array(own.known, np.float32),
        static=np.zeros(0, np.float32),
        location=np.array(own.location),
        scale=np.array(own.scale),
    )
    view = build_attribution_view(freeze(made.network()))
    return Explainer(view, build_output_map(made.manifest), baseline, max_rows=MAX_ROWS)


def compared(name: str, made: Artifact, inputs: Inputs, *, rounds: int, judged: bool) -> list[Row]:
    ours, peer, rows = our_explainer(made), CaptumPeer.of(made, inputs), len(inputs.mask)
    found: list[Row] = []
    for targets, points, reach in (
        ("12 targets", POINTS, MANY_REACH),
        ("1 target", MEDIAN_OF_FIVE_DAYS, ONE_REACH),
    ):
        steps = peer.fewest_steps(points)
        explained = ours.explain(inputs, points, deadline=NEVER, tolerance=GAP_REACH)
        times = interleaved_medians(
            {
                "ours": partial(ours.explain, inputs, points, deadline=NEVER, tolerance=GAP_REACH),
                "captum": partial(peer.attribute, points, steps),
                "captum at our nodes": partial(peer.attribute, points, int(max(one.nodes.max() for one in explained))),
            },
            rounds=rounds,
            calls=1 if rows > 1 else 5,
            clock=time.thread_time,
        )
        about = f"{name}, {rows} windows, {targets}"
        found += [
            at_most(
                f"{about}: time relative to Captum",
                times["ours"] / times["captum"],
                reach,
                detail=f"{times['ours'] * 1e3:.1f} ms; Captum {times['captum'] * 1e3:.1f} ms with {steps} steps",
                judged=judged,
            ),
            shown(
                f"{about}: the same at equal nodes",
                times["ours"] / times["captum at our nodes"],
                detail=f"{min(one.nodes.min() for one in explained)} to {max(one.nodes.max() for one in explained)}",
            ),
            at_most(
                f"{about}: largest relative gap",
                max(float(one.relative_gap.max()) for one in explained),
                GAP_REACH,
                detail=f"Captum {peer.largest_gap(points, steps):.2g}",
                judged=judged,
            ),
        ]
    return found


def counted(name: str, made: Artifact, inputs: Inputs) -> Row:
    """Share of windows and targets that converge, and their numbers of nodes."""
    contributions = our_explainer(made).explain(inputs, POINTS, deadline=NEVER, tolerance=GAP_REACH)
    nodes, pairs = np.unique(np.stack([one.nodes for one in contributions]), return_counts=True)
    detail = ", ".join(f"{share:.1%} with {count}" for count, share in zip(nodes, pairs / pairs.sum(), strict=True))
    share = float(np.mean([one.converged for one in contributions]))
    return shown(
        f"{name}: share of {len(inputs.mask)} windows x {len(POINTS)} targets that converge", share, detail=detail
    )


def rows_of(scale: Scale, *, quick: bool) -> list[Row]:
    """Rows of one model."""
    optimisation = Optimisation(max_epochs=1, device="cpu") if quick else Optimisation(device="cpu")
    recipe = StockRecipe(calendar=CALENDAR, scale=scale, optimisation=optimisation)
    bars, rounds, many, most = real_bars(), 1 if quick else 9, 4 if quick else 32, 8 if quick else COUNTED
    made = trained(bars, recipe)
    rows = [counted(scale, made, test_windows(bars, made, recipe, most))]
    for count in (1, many):
        rows += compared(scale, made, test_windows(bars, made, recipe, count), rounds=rounds, judged=not quick)
    return rows


def main() -> int:
    arguments = parse_arguments(__doc__ or "")
    torch.set_num_threads(1)
    return publish([row for scale in SCALES for row in rows_of(scale, quick=arguments.quick)], arguments.json)


if __name__ == "__main__":
    sys.exit(main())
