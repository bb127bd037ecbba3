"""Self-contained HTML pages of drawn images and evaluations."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import torch
from PIL import Image
from torch import Tensor

from trainers.dit.errors import ModelError
from trainers.dit.evaluation import ImageEvaluation, wilson_interval
from trainers.dit.models import TRAINING, TUNING, Notes
from trainers.dit.rewards import KINDS
from trainers.dit.sampling import as_image
from trainers.media.page import (
    LabelledFigure,
    TrainingCurve,
    encode_png,
    figure,
    percent,
    plain,
    plots,
    render,
    take_within_limit,
)
from trainers.media.run_directory import divide_into_rounds

MAX_PROMPTS: Final = 24
"""Maximum number of prompts shown."""


MAX_IMAGES: Final = 8
"""Maximum number of images shown per prompt."""


MAX_DRAWN: Final = 100
"""Maximum number of images shown on a page of one prompt."""


MAX_MISCLASSIFIED: Final = 24
"""Maximum number of misclassified images shown."""


MAX_SHOWN_PIXELS: Final = 64
"""Displayed width of smaller images, in CSS pixels."""


HEAVIEST: Final = 1_300_000
"""Maximum characters of the images of all prompts, so that phones can load the page."""


HEAVIEST_MISTAKEN: Final = 400_000
"""Maximum characters of the misclassified images."""


MAX_EDGE: Final = 160
"""Longer edge of an image on the page, in pixels; larger images are scaled down."""


LIMITS: Final = (
    "The classifier is trained only on the training images: it measures whether images follow their prompts, not "
    "whether they are beautiful."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageStrip:
    """A row of images.

    Attributes:
        heading: Heading of the row.
        pictures: Images as data URIs.
        width: Displayed width of each image, in CSS pixels.
        small: Whether images are enlarged, with visible pixels.
        described: Alternative text of each image.
    """

    heading: str
    pictures: tuple[str, ...]
    width: int
    small: bool
    described: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSamples:
    """Images of a prompt.

    Attributes:
        prompt: Prompt of the images.
        note: Number of images, and of those classified as the prompt.
        strips: Real images, if any, then drawn ones.
    """

    prompt: str
    note: str
    strips: tuple[ImageStrip, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MisclassifiedImage:
    """A drawn image that is not classified as its prompt.

    Attributes:
        prompt: Prompt of the image.
        predicted: Predicted prompt.
        strip: The image.
    """

    prompt: str
    predicted: str
    strip: ImageStrip


@dataclass(frozen=True, slots=True, kw_only=True)
class PageData:
    """Contents of a page.

    Attributes:
        title: Heading.
        lines: Lines below the heading: model, sampling settings and images.
        figures: Scores, the main one first; empty without an evaluation.
        limits: Note on the limits of the scores, or an empty string.
        prompts: Prompts shown.
        more: Number of prompts not shown.
        mistaken: Misclassified images shown.
        mistaken_count: Number of all misclassified images.
        curves: Training curves.
    """

    title: str
    lines: tuple[str, ...]
    prompts: tuple[PromptSamples, ...]
    figures: tuple[LabelledFigure, ...] = ()
    limits: str = ""
    more: int = 0
    mistaken: tuple[MisclassifiedImage, ...] = ()
    mistaken_count: int = 0
    curves: tuple[TrainingCurve, ...] = ()


def render_sheet(sheet: PageData) -> str:
    """Render a page as HTML; the same contents give the same text."""
    return render("trainers.dit", "sheet.html", {"sheet": sheet, "plots": plots(sheet.curves)})


def build_sample_page(
    title: str, lines: Sequence[str], prompt: str, images: Tensor, curves: Iterable[TrainingCurve]
) -> PageData:
    """Contents of a page of one prompt, with images, float32 [N, channels, height, width], 0 to 1."""
    strip = build_strip("Drawn", images[:MAX_DRAWN], prompt)
    strip = replace(strip, pictures=take_within_limit(strip.pictures, len, HEAVIEST))
    note = f"{len(images):,} image{'s' if len(images) > 1 else ''}"
    if len(images) > len(strip.pictures):
        note += f", the first {len(strip.pictures)} shown"
    return PageData(
        title=title,
        lines=tuple(lines),
        prompts=(PromptSamples(prompt=prompt, note=note, strips=(strip,)),),
        curves=tuple(curves),
    )


def build_evaluation_page(
    title: str, lines: Sequence[str], evaluation: ImageEvaluation, curves: Iterable[TrainingCurve]
) -> PageData:
    """Contents of a page of an evaluation, with the first images of the first prompts."""
    prompts = tuple(dict.fromkeys(evaluation.prompts))
    samples = take_within_limit(
        (_select_samples(evaluation, prompt) for prompt in prompts[:MAX_PROMPTS]),
        lambda samples: sum(map(_strip_weight, samples.strips)),
        HEAVIEST,
    )
    predictions = () if evaluation.predictions is None else evaluation.predictions.drawn
    wrong = [index for index, predicted in enumerate(predictions) if predicted != evaluation.prompts[index]]
    mistaken = (
        MisclassifiedImage(
            prompt=evaluation.prompts[index],
            predicted=predictions[index],
            strip=build_strip("Drawn", evaluation.images[index : index + 1], evaluation.prompts[index]),
        )
        for index in wrong[:MAX_MISCLASSIFIED]
    )
    return PageData(
        title=title,
        lines=tuple(lines),
        figures=tuple(_list_figures(evaluation)),
        limits="" if evaluation.predictions is None else LIMITS,
        prompts=samples,
        more=len(prompts) - len(samples),
        mistaken=take_within_limit(mistaken, lambda image: _strip_weight(image.strip), HEAVIEST_MISTAKEN),
        mistaken_count=len(wrong),
        curves=tuple(curves),
    )


def _strip_weight(strip: ImageStrip) -> int:
    return sum(map(len, strip.pictures))


def build_strip(heading: str, images: Tensor, prompt: str) -> ImageStrip:
    """Row of images of a prompt, float [N, channels, height, width], 0 to 1, scaled down for the page."""
    height, width = images.shape[2:]
    small = max(height, width) < MAX_SHOWN_PIXELS
    reduced = min(1.0, MAX_EDGE / max(height, width))
    return ImageStrip(
        heading=heading,
        pictures=tuple(encode_png(_reduce(as_image(image))) for image in images),
        width=MAX_SHOWN_PIXELS if small else max(1, round(width * reduced)),
        small=small,
        described=f"{heading}: {prompt}",
    )


def _reduce(image: Image.Image) -> Image.Image:
    image.thumbnail((MAX_EDGE, MAX_EDGE), Image.Resampling.LANCZOS)
    return image


def _list_figures(evaluation: ImageEvaluation) -> Iterator[LabelledFigure]:
    """Scores, with the accuracy first if a classifier was used."""
    count = len(evaluation.prompts)
    if evaluation.predictions is not None:
        low, high = map(percent, wilson_interval(evaluation.correct, count))
        note = f"{evaluation.correct:,} of {count:,} are classified as their prompt"
        interval = f"95\N{NO-BREAK SPACE}% interval {low} to {high}"
        real = f"{percent(evaluation.real_correct / count)} of the real images"
        yield figure("Prompt accuracy", evaluation.correct / count, percent, f"{note}; {interval}; {real}")
    for score in evaluation.scores:
        note = f"mean of {count:,}; real images have {plain(score.real)}; higher is better"
        if score.is_distance:
            compared = f"{count:,} images against {score.against:,} real ones"
            note = f"{compared}; real images have {plain(score.real)}; lower is better"
        yield figure(score.title, score.value, plain, note)
    yield figure("Images", count, "{:,.0f}".format, f"of {len(set(evaluation.prompts)):,} held-out prompts")


def _select_samples(evaluation: ImageEvaluation, prompt: str) -> PromptSamples:
    indices = [index for index, other in enumerate(evaluation.prompts) if other == prompt]
    note = f"{len(indices):,} drawn"
    if evaluation.predictions is not None:
        note += f", {sum(evaluation.predictions.drawn[index] == prompt for index in indices):,} classified as it"
    first_indices = torch.tensor(indices[:MAX_IMAGES])
    strips = (
        build_strip("Real", evaluation.targets[first_indices], prompt),
        build_strip("Drawn", evaluation.images[first_indices], prompt),
    )
    return PromptSamples(prompt=prompt, note=note, strips=strips)


def build_curves(notes: Notes) -> list[TrainingCurve]:
    """Training and tuning curves of a model; empty without notes.

    Raises:
        ModelError: The notes are damaged.
    """
    try:
        return [curve for name, read in READERS.items() if name in notes for curve in read(notes[name])]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelError(
            f"{' or '.join(notes)} in the model's folder is damaged ({error!r}); restore it, or remove it to show no "
            "curves"
        ) from error


def _build_training_curves(notes: Mapping[str, Any]) -> Iterator[TrainingCurve]:
    round_steps = divide_into_rounds(notes["recipe"]["steps"]).round_steps
    losses: Sequence[float] = notes["curves"]["loss"]
    yield TrainingCurve(
        name="Loss",
        over="steps",
        points=tuple((round_steps * (number + 1), float(loss)) for number, loss in enumerate(losses)),
        note="Mean of each round. Much of it is unpredictable noise; images improve even while it hardly falls.",
    )
    yield from _build_evaluation_curves(notes["curves"]["snapshots"], notes["facts"], "training steps")


def _build_tuning_curves(notes: Mapping[str, Any]) -> Iterator[TrainingCurve]:
    """Rewards of a tuning run: of its rollouts, then of held-out prompts."""
    recipe, rounds = notes["recipe"], notes["tuned"]["rounds"]
    yield TrainingCurve(
        name=f"{_build_title(recipe['reward'])}, rollouts",
        over="tuning iterations",
        points=tuple((number, float(entry["reward"])) for number, entry in enumerate(rounds, start=1)),
        note="Drawn with random steps, so lower than without.",
    )
    yield from _build_evaluation_curves(notes["tuned"]["snapshots"], notes["facts"], "tuning steps")


def _build_evaluation_curves(
    snapshots: Sequence[Mapping[str, Any]], facts: Notes, over: str
) -> Iterator[TrainingCurve]:
    """One curve per reward of held-out prompts, with distances as positive numbers."""
    for name in snapshots[0]["rewards"] if snapshots else ():
        distance = facts[name] if name in facts else None  # noqa: SIM401
        sign = 1 if distance is None else -1
        points = tuple((float(snapshot["window"]), sign * float(snapshot["rewards"][name])) for snapshot in snapshots)
        if distance is None:
            yield TrainingCurve(name=f"{_build_title(name)}, held-out prompts", over=over, points=points)
            continue
        yield TrainingCurve(
            name=f"{_build_title(name)}, held-out prompts",
            over=over,
            points=points,
            level=float(distance["floor"]),
            level_name=f"distance of {distance['images']:,} real images",
            note=f"{distance['images']:,} images against {distance['against']:,} real ones; lower is better.",
        )


def _build_title(name: str) -> str:
    return KINDS[name].title if name in KINDS else name


READERS: Final = MappingProxyType({TRAINING: _build_training_curves, TUNING: _build_tuning_curves})
