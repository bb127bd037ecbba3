"""Image quality after a number of training steps, compared with the control, and which parts are trained."""

from collections.abc import Sequence
from functools import partial
from itertools import product
from statistics import median
from typing import Final

import torch

from benchmarks.drawing import control
from benchmarks.drawing.digits import Workplace, seconds_of
from benchmarks.drawing.judging import ImageJudge, ImageScores
from benchmarks.report import Row, at_least, at_most, shown
from trainers.dit.batches import LatentCache
from trainers.dit.models import ImageModel
from trainers.dit.objective import DiffusionObjective, create_objective
from trainers.dit.recipe import ImageRecipe
from trainers.dit.training import DenoisingLoss, NoiseSource

STEPS: Final = 1500
SEEDS: Final = (0, 1, 2)
ACCURACY, DISTANCE = 0.98, 6.0


def rows(work: Workplace, judging: ImageJudge, *, quick: bool) -> list[Row]:
    """All rows; a quick run has a hundredth of the steps, one seed, and is not judged."""
    steps = STEPS // 100 if quick else STEPS
    return [
        *coverage(work),
        *judge(judging),
        *learnt(work, judging, SEEDS[:1] if quick else SEEDS, steps, judged=not quick),
        *(row for name in ("epsilon", "velocity") for row in other(work, judging, name, steps)),
        *controlled(work, judging, steps),
    ]


def coverage(work: Workplace) -> list[Row]:
    """Share of each part's parameters that get a gradient in a step."""
    model = ImageModel.load(work.base(0)).learning("flow")
    batch = LatentCache.open(work.cache).gather(torch.arange(64))
    torch.manual_seed(0)
    DenoisingLoss(model, NoiseSource(create_objective("flow"), ImageRecipe().dropout)).loss(batch).mean.backward()
    parts = {"transformer": model.network.module, "VAE": model.latents.module, "text encoder": model.prompts.module}
    counts = {
        name: (
            sum(one.grad is not None and bool(one.grad.any()) for one in part.parameters()),
            len(list(part.parameters())),
        )
        for name, part in parts.items()
    }
    return [
        (at_least if name == "transformer" else at_most)(
            f"gradients: {name}, %",
            100 * having / count,
            100 if name == "transformer" else 0,
            detail=f"{having} of {count} parameters",
        )
        for name, (having, count) in counts.items()
    ]


def judge(judging: ImageJudge) -> list[Row]:
    """Scores of the real images."""
    return [
        shown("real images: recognised", judging.real, detail=f"{judging.count} held-out images, by the judge"),
        shown(
            "real images: Fréchet distance, the floor",
            judging.floor,
            detail=f"{judging.count} training images against {judging.count} held out",
        ),
    ]


def learnt(work: Workplace, judging: ImageJudge, seeds: Sequence[int], steps: int, *, judged: bool) -> list[Row]:
    """Scores of each seed, and their median, which is judged."""
    models = [work.trained(f"flow-{seed}", seed, "--steps", str(steps)) for seed in seeds]
    found = [judging.judged(model) for model in models]
    title, drawn = f"{steps} steps", f"{judging.count} images, guidance 2, 20 steps"
    each = f"median of {len(seeds)} seeds; {drawn}"
    return [
        *(row for seed, one in zip(seeds, found, strict=True) for row in _shown(f"{title}, seed {seed}", one, judging)),
        at_least(
            f"{title}: prompts recognised",
            median(one.accuracy for one in found),
            ACCURACY,
            detail=each,
            judged=judged,
        ),
        at_most(
            f"{title}: Fréchet distance",
            median(one.distance for one in found),
            DISTANCE,
            detail=f"{each}; real images {judging.floor:.2f}",
            judged=judged,
        ),
        shown(
            f"{title}: training, s",
            median(seconds_of(model) for model in models),
            detail=f"median of {len(seeds)} seeds, wall time on a shared machine",
        ),
    ]


def other(work: Workplace, judging: ImageJudge, name: str, steps: int) -> list[Row]:
    """Scores of another objective, one seed."""
    model = work.trained(name, 0, "--objective", name, "--steps", str(steps))
    return _shown(f"objective {name}, {steps} steps, seed 0", judging.judged(model), judging)


def controlled(work: Workplace, judging: ImageJudge, steps: int) -> list[Row]:
    """Scores of the control: one training, drawn by each sampler, with and without guidance."""

    def drawn(objective: DiffusionObjective, guidance: float) -> ImageScores:
        model = control.trained(work, "control", steps=steps, seed=0)
        model.objective = objective
        return judging.figures(model, guidance=guidance)

    found: list[Row] = []
    for (sampler, objective), guidance in product(control.samplers().items(), (2.0, 1.0)):
        name = f"{sampler}, guidance {guidance:g}"
        figures = judging.kept(f"control, {name}", partial(drawn, objective, guidance))
        found += _shown(f"control, {steps} steps, {name}", figures, judging)
    return found


def _shown(title: str, figures: ImageScores, judging: ImageJudge) -> list[Row]:
    return [
        shown(f"{title}: prompts recognised", figures.accuracy, detail=f"of {judging.count} images"),
        shown(f"{title}: Fréchet distance", figures.distance, detail=f"{judging.count} images"),
    ]
