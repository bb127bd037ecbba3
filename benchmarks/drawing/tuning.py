"""Effect of tuning by a reward on trained models: reward, variety and cost.

Each trained model is tuned with the defaults, with the classifier as reward and the Fréchet distance as gate. Judged
images are drawn without guidance, as in tuning, for all held-out prompts from noise that no tuning uses.
"""

import json
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Any, Final, final

from benchmarks.drawing.digits import Workplace
from benchmarks.drawing.judging import NOISE, ImageJudge, ImageScores
from benchmarks.drawing.learning import SEEDS
from benchmarks.drawing.resampling import paired_difference
from benchmarks.report import Row, above, at_most, shown
from trainers.dit.grpo import tune
from trainers.dit.models import ImageModel
from trainers.dit.recipe import GrpoRecipe
from trainers.dit.reward_monitor import RewardGate, SampleEvaluator
from trainers.dit.rewards import RewardInputs, create_rewards
from trainers.dit.sampling import SamplingSettings
from trainers.loop import EpochReport, Report, TrainingNotice, seed_everything

BOUND: Final = 1.3
NOISES: Final = (NOISE, NOISE + 1, NOISE + 2)
UNGUIDED, GUIDED = 1.0, 2.0
BRIEF: Final = ("--iterations", "1", "--gate-images", "16", "--gate-steps", "4", "--groups", "2", "--members", "2")


@final
@dataclass(frozen=True, slots=True)
class TuningComparison:
    """Scores of a model before and after tuning, per noise.

    Attributes:
        seed: seed of its training and its tuning.
        before: scores before, per noise.
        after: scores after, per noise.
        description: description of the tuning.
    """

    seed: int
    before: Sequence[ImageScores]
    after: Sequence[ImageScores]
    description: str


def rows(work: Workplace, judging: ImageJudge, *, quick: bool) -> list[Row]:
    """Rows of each seed's model and of all together; a quick run tunes briefly."""
    words, seeds = (BRIEF, SEEDS[:1]) if quick else ((), SEEDS)
    noises = NOISES[:1] if quick else NOISES
    found = [tuning(work, judging, seed, noises, words) for seed in seeds]
    return [
        *(row for one in found for row in _of_seed(one, judged=not quick)),
        *_of_all(found, judged=not quick),
        *(row for seed in seeds for row in _guided(work, judging, seed)),
        *cost(work, quick=quick),
    ]


def tuning(
    work: Workplace, judging: ImageJudge, seed: int, noises: Sequence[int], words: Sequence[str]
) -> TuningComparison:
    """Tune the model of a seed and score it before and after."""
    start = work.folder / f"flow-{seed}"
    tuned = work.tuned(f"tuned-{seed}", start, seed, *words)
    before, after = (
        [judging.judged(model, guidance=UNGUIDED, noise=noise) for noise in noises] for model in (start, tuned)
    )
    return TuningComparison(seed, before, after, _describe_tuning(tuned))


def cost(work: Workplace, *, quick: bool) -> list[Row]:
    """Processor time of an iteration and of an evaluation of both metrics."""
    iterations = 1 if quick else 6
    recipe = GrpoRecipe(iterations=iterations, gate_every=1, bound=1e6, gate_images=16 if quick else 256, device="cpu")
    model = ImageModel.load(work.folder / "flow-0")
    own, held = work.pictures(work.images), work.pictures(work.held_out)
    material = RewardInputs(own, held, None, recipe.gate_images)
    rewards = create_rewards((recipe.reward, recipe.gate), material)
    evaluator = SampleEvaluator(
        model, material, rewards, SamplingSettings(steps=recipe.gate_steps, guidance=recipe.guidance)
    )
    gate = RewardGate(evaluator, reward=recipe.reward, quality=recipe.gate, bound=recipe.bound, every=recipe.gate_every)
    clock = _Clock()
    seed_everything(0)
    tune(model, own, rewards[0], gate, recipe, None, clock)
    drawn = f"{recipe.groups} x {recipe.members} images in {recipe.draw_steps} steps, {recipe.trained_steps} trained on"
    return [
        shown("GRPO: an iteration, ms", 1e3 * statistics.median(clock.iterations), detail=f"{drawn}; processor time"),
        shown(
            "GRPO: an evaluation, ms",
            1e3 * statistics.median(clock.snapshots),
            detail=f"{recipe.gate_images} images, {recipe.gate_steps} steps, no guidance; processor time",
        ),
    ]


@final
class _Clock:
    """Records the processor seconds of each iteration and each evaluation from the reports of a tuning run."""

    def __init__(self) -> None:
        self.iterations: list[float] = []
        self.snapshots: list[float] = []

    def __call__(self, reports: Iterable[Report]) -> Iterator[Report]:
        """Pass on the reports; an evaluation ends with its notice, an iteration with its epoch report."""
        start = time.process_time()
        for report in reports:
            now = time.process_time()
            if isinstance(report, TrainingNotice):
                self.snapshots.append(now - start)
            elif isinstance(report, EpochReport):
                self.iterations.append(now - start)
            yield report
            if isinstance(report, TrainingNotice | EpochReport):
                start = time.process_time()


def _of_seed(one: TuningComparison, *, judged: bool) -> list[Row]:
    reward = [mean(figures.reward for figures in some) for some in (one.before, one.after)]
    distance = [mean(figures.distance for figures in some) for some in (one.before, one.after)]
    accuracy = [mean(figures.accuracy for figures in some) for some in (one.before, one.after)]
    title = f"GRPO, seed {one.seed}"
    images = f"{len(one.before)} noises of {len(one.before[0].rewards)} held-out prompts"
    return [
        above(
            f"{title}: reward gained",
            reward[1] - reward[0],
            0,
            detail=f"from {reward[0]:.4f} to {reward[1]:.4f}, {images}; {one.description}",
            judged=judged,
        ),
        at_most(
            f"{title}: Fréchet distance / before",
            distance[1] / distance[0],
            BOUND,
            detail=f"from {distance[0]:.2f} to {distance[1]:.2f}, means over the noises",
            judged=judged,
        ),
        shown(f"{title}: prompts recognised", accuracy[1], detail=f"before {accuracy[0]:.3f}"),
    ]


def _of_all(found: Sequence[TuningComparison], *, judged: bool) -> list[Row]:
    """Compare images with the same prompt and noise before and after."""
    before, after = (_rewards(figures.rewards for figures in some) for some in _figures(found))
    own = paired_difference(before, after)
    unused = paired_difference(*(_rewards(figures.rewards_unused for figures in some) for some in _figures(found)))
    return [
        above(
            "GRPO, all seeds: reward gained, lower bound of 95 %",
            own.low,
            0,
            detail=f"mean {own.mean:.4f}, upper bound {own.high:.4f}; paired bootstrap over {len(before)} images",
            judged=judged,
        ),
        shown(
            "GRPO, all seeds: the same to a judge of held-out images",
            unused.low,
            detail=f"mean {unused.mean:.4f}, upper bound {unused.high:.4f}; this judge is not the reward",
        ),
    ]


def _figures(found: Sequence[TuningComparison]) -> tuple[list[ImageScores], list[ImageScores]]:
    """Scores of all tunings before and after."""
    return [*chain(*(one.before for one in found))], [*chain(*(one.after for one in found))]


def _rewards(parts: Iterable[Sequence[float]]) -> list[float]:
    return [*chain(*parts)]


def _guided(work: Workplace, judging: ImageJudge, seed: int) -> list[Row]:
    """Scores with guidance, which tuning does not use."""
    before, after = (judging.judged(work.folder / f"{kind}-{seed}", guidance=GUIDED) for kind in ("flow", "tuned"))
    return [
        shown(
            f"GRPO, seed {seed}, guidance 2: Fréchet distance",
            after.distance,
            detail=f"before {before.distance:.2f}; recognised {after.accuracy:.3f}, before {before.accuracy:.3f}",
        )
    ]


def _describe_tuning(model: Path) -> str:
    """Describe a tuning run from the file that is saved with its model."""
    tuned: Mapping[str, Any] = json.loads((model / "tuning.json").read_text("utf-8"))["tuned"]
    end = "ended by its gate" if tuned["refused"] else "to its end"
    return f"{len(tuned['rounds'])} iterations, {end}; kept after {tuned['kept']['window']} steps"
