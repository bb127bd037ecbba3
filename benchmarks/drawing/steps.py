"""Processor time of a training step: from a cache and from images encoded in every step, in the loop and by hand.

All subjects have the same first weights, images in the same order and settings: fused AdamW, clipping, a schedule, an
average of the weights, and a read of every loss.
"""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, final

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import get_ema_multi_avg_fn

from benchmarks.drawing.digits import Workplace
from benchmarks.report import Row, at_most, shown
from trainers.dit.batches import EncodedImages, ImageSource, LatentCache, RawImageFiles, RawImages
from trainers.dit.models import ImageModel
from trainers.dit.objective import create_objective
from trainers.dit.recipe import ImageRecipe
from trainers.dit.training import DenoisingLoss, NoiseSource, build_loop, compute_warmup_factor
from trainers.loop import IterableSource, StepReport, adamw, seed_everything

WARM, BATCHES = 5, 20
RECIPE: Final = ImageRecipe(device="cpu", precision="fp32")
EQUAL, CACHED, NOTHING_ELSE, LOOP = 1e-6, 0.6, 1.02, 1.02


def rows(work: Workplace, *, quick: bool) -> list[Row]:
    """Differences of losses, ratios of step times, and the milliseconds behind them."""
    steps = 2 if quick else 200
    cache, plain = LatentCache.open(work.cache), RawImageFiles(work.pictures(work.images), _model(work).prompts)
    places = _places(len(cache), WARM + steps)
    ways = {
        "in the loop": in_loop(work, cache, places),
        "by hand": by_hand(work, cache, places),
        "by hand, encoded in every step": by_hand(work, plain, places),
        "reading and encoding only": encoding(work, plain, places),
    }
    seconds = _taken(ways, steps)
    detail = f"median of {steps} pairs, {RECIPE.batch_size} images each, processor time"
    return [
        *equality(work, cache, plain, places[:BATCHES]),
        *_of_cache(seconds, detail, judged=not quick),
        at_most(
            "step: in the loop / by hand",
            _ratio(seconds["in the loop"], seconds["by hand"]),
            LOOP,
            detail=detail,
            judged=not quick,
        ),
        *(
            shown(f"step, {name}, ms", 1e3 * statistics.median(taken), detail="processor time")
            for name, taken in seconds.items()
        ),
    ]


def equality(work: Workplace, cache: LatentCache, plain: RawImageFiles, places: Sequence[Tensor]) -> list[Row]:
    """Compare losses of the same images at the same random state from both sources."""
    learnt = DenoisingLoss(_model(work), NoiseSource(create_objective("flow"), RECIPE.dropout))

    def losses(images: ImageSource[EncodedImages] | ImageSource[RawImages]) -> Iterator[float]:
        for number, index in enumerate(places):
            torch.manual_seed(number)
            with torch.no_grad():
                yield learnt.loss(images.gather(index)).mean.item()

    worst = max(abs(one - other) for one, other in zip(losses(cache), losses(plain), strict=True))
    detail = f"of {len(places)} batches of {RECIPE.batch_size}, at an equal random state"
    return [at_most("cached / encoded in every step: largest difference of losses", worst, EQUAL, detail=detail)]


def in_loop(
    work: Workplace, images: ImageSource[EncodedImages] | ImageSource[RawImages], places: Sequence[Tensor]
) -> Iterator[None]:
    """Train by one step per item, including gathering the images."""
    seed_everything(0)
    with build_loop(_model(work), RECIPE).running() as run:
        for report in run.epochs(IterableSource(_Gathered(images, places)), max_epochs=1):
            if isinstance(report, StepReport):
                yield


def by_hand(
    work: Workplace, images: ImageSource[EncodedImages] | ImageSource[RawImages], places: Sequence[Tensor]
) -> Iterator[None]:
    """Train by one step per item without the loop and its guards."""
    seed_everything(0)
    model = _model(work)
    parameters = list(model.network.module.train().parameters())
    current: list[Tensor] = [*parameters]
    average = [weight.detach().clone() for weight in parameters]
    optimizer = adamw(parameters, lr=RECIPE.learning_rate, weight_decay=0.0)
    schedule = LambdaLR(optimizer, partial(compute_warmup_factor, steps=RECIPE.warm_up))
    averaged = get_ema_multi_avg_fn(RECIPE.ema or 0.0)
    learnt = DenoisingLoss(model, NoiseSource(create_objective("flow"), RECIPE.dropout))
    for index in places:
        optimizer.zero_grad()
        loss = learnt.loss(images.gather(index)).mean
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, RECIPE.clip)
        optimizer.step()
        schedule.step()
        averaged(average, current, 0)
        loss.item()
        yield


@final
class _Gathered:
    """Batches of some positions, gathered on demand."""

    def __init__(self, images: ImageSource[Any], places: Sequence[Tensor]) -> None:
        self._images = images
        self._places = places

    def __iter__(self) -> Iterator[Any]:
        return map(self._images.gather, self._places)


def encoding(work: Workplace, images: RawImageFiles, places: Sequence[Tensor]) -> Iterator[None]:
    """Do only what a cache saves in each step: reading image files, VAE and text encoder."""
    model = _model(work)
    for index in places:
        batch = images.gather(index)
        model.prompts.embed(batch.tokens)
        model.latents.encode(batch.pixels)
        yield


def _of_cache(seconds: Mapping[str, Sequence[float]], detail: str, *, judged: bool) -> list[Row]:
    """Rows that show that a cache saves reading and encoding, and costs nothing else."""
    cached, encoded, saved = (
        seconds[name] for name in ("by hand", "by hand, encoded in every step", "reading and encoding only")
    )
    rest = [whole - part for whole, part in zip(encoded, saved, strict=True)]
    return [
        at_most("step: cached / encoded in every step", _ratio(cached, encoded), CACHED, detail=detail, judged=judged),
        shown("step: share of reading and encoding in the latter", _ratio(saved, encoded), detail="timed separately"),
        at_most(
            "step: cached / encoded in every step, less reading and encoding",
            _ratio(cached, rest),
            NOTHING_ELSE,
            detail="both are small compared with the transformer: a cache saves all that it can",
            judged=judged,
        ),
    ]


def _taken(ways: Mapping[str, Iterator[None]], steps: int) -> dict[str, list[float]]:
    """Seconds of every step by name; all take turns at each step, so that a busy machine affects them alike."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(WARM + steps):
        for name, way in ways.items():
            start = time.process_time()
            next(way)
            if number >= WARM:
                seconds[name].append(time.process_time() - start)
    return seconds


def _ratio(of: Sequence[float], to: Sequence[float]) -> float:
    return statistics.median(one / other for one, other in zip(of, to, strict=True))


def _model(work: Workplace) -> ImageModel:
    """A model with the same first weights each time."""
    return ImageModel.load(work.base(0)).learning("flow")


def _places(images: int, count: int) -> list[Tensor]:
    """Batches of the trainer's size, the same for all subjects."""
    draw = torch.Generator().manual_seed(1)
    return [torch.randint(images, (RECIPE.batch_size,), generator=draw) for _ in range(count)]
