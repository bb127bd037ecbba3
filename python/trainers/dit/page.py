"""What a model draws as a page to look at: one HTML file that loads nothing from anywhere."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from PIL import Image
from torch import Tensor

from trainers.dit.evaluation import Evaluation, Score
from trainers.dit.sampling import as_image, grid
from trainers.dit.statistics import wilson_interval
from trainers.media.curves import Curve, plots
from trainers.media.page import Figure, figure, percent, plain, png_uri, render, write_whole

MOST_PROMPTS: Final = 24
"""Prompts whose images are shown."""

MOST_IMAGES: Final = 8
"""Images of a prompt that are shown."""

MOST_MISTAKEN: Final = 24
"""Images that were taken for something else that are shown."""

WIDEST: Final = 1024
"""Pixels of a row of images; wider ones are shown smaller."""

LIMITS: Final = (
    "The classifier has learnt from the images that were given to learn from, and from nothing else: it tells whether "
    "prompts are followed, not whether images are beautiful."
)

LARGEST: Final = 64
"""Pixels of the edge of an image up to which each of them is shown as a square."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """Images side by side, ready to be seen.

    Attributes:
        heading: whose they are.
        picture: a data URI.
        columns: how many stand in a row.
        side: pixels across one of them.
        described: for who cannot see them.
    """

    heading: str
    picture: str
    columns: int
    side: int
    described: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompted:
    """What was drawn of a prompt.

    Attributes:
        prompt: what was to be seen.
        note: how many there are, and how many were taken for it.
        strips: real images where there are some, then drawn ones.
    """

    prompt: str
    note: str
    strips: tuple[Strip, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistaken:
    """An image that a classifier took for something else.

    Attributes:
        prompt: what it was to show.
        taken: what it was taken for.
        strip: the image.
    """

    prompt: str
    taken: str
    strip: Strip


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """Everything that a page shows.

    Attributes:
        title: the heading.
        lines: below it: what drew, how, and of which images.
        figures: the first is the one to look at; none where nothing was judged.
        limits: what the figures do not tell; empty where there is nothing to say.
        prompts: those that are shown.
        more: prompts that are not.
        mistaken: those that are shown.
        mistaken_count: all of them.
        curves: how the model came to be.
    """

    title: str
    lines: tuple[str, ...]
    prompts: tuple[Prompted, ...]
    figures: tuple[Figure, ...] = ()
    limits: str = ""
    more: int = 0
    mistaken: tuple[Mistaken, ...] = ()
    mistaken_count: int = 0
    curves: tuple[Curve, ...] = ()


def write_sheet(path: Path, sheet: Sheet) -> None:
    """Write the page, whole or not at all, in place of an older one.

    Raises:
        OSError: the file cannot be written; what was there stays as it was.
    """
    write_whole(path, render_sheet(sheet).encode())


def render_sheet(sheet: Sheet) -> str:
    """The page as HTML text; the same sheet gives the same text."""
    return render("trainers.dit", "sheet.html", {"sheet": sheet, "plots": plots(sheet.curves), "largest": LARGEST})


def drawn_sheet(title: str, lines: Sequence[str], prompt: str, images: Tensor, curves: Iterable[Curve]) -> Sheet:
    """Of images of one prompt, float32 [N, channels, height, width], 0 to 1, all of which are shown."""
    strip = strip_of("Drawn", images, prompt, len(images))
    note = f"{len(images):,} image{'s' if len(images) > 1 else ''}"
    return Sheet(
        title=title,
        lines=tuple(lines),
        prompts=(Prompted(prompt=prompt, note=note, strips=(strip,)),),
        curves=tuple(curves),
    )


def judged_sheet(title: str, lines: Sequence[str], found: Evaluation, curves: Iterable[Curve]) -> Sheet:
    """Of an evaluation, with the first images of the first prompts."""
    prompts = tuple(dict.fromkeys(found.prompts))
    wrong = _wrong(found)
    return Sheet(
        title=title,
        lines=tuple(lines),
        figures=tuple(_figures(found)),
        limits="" if found.telling is None else LIMITS,
        prompts=tuple(_prompted(found, prompt) for prompt in prompts[:MOST_PROMPTS]),
        more=max(0, len(prompts) - MOST_PROMPTS),
        mistaken=tuple(_mistaken(found, place, taken) for place, taken in wrong[:MOST_MISTAKEN]),
        mistaken_count=len(wrong),
        curves=tuple(curves),
    )


def strip_of(heading: str, images: Tensor, prompt: str, columns: int = MOST_IMAGES) -> Strip:
    """Images, float [N, channels, height, width], 0 to 1, in rows of so many at most, no wider than a page needs."""
    across, side = min(columns, MOST_IMAGES, len(images)), images.shape[3]
    picture = as_image(grid(images, across))
    if picture.width > WIDEST:
        height = round(picture.height * WIDEST / picture.width)
        picture = picture.resize((WIDEST, height), resample=Image.Resampling.LANCZOS)
    return Strip(
        heading=heading,
        picture=png_uri(picture),
        columns=across,
        side=side,
        described=f"{heading}: {len(images)} of {prompt}",
    )


def _figures(found: Evaluation) -> Iterator[Figure]:
    """The accuracy first, where a classifier was asked."""
    count = len(found.prompts)
    if found.telling is not None:
        low, high = map(percent, wilson_interval(found.right, count))
        note = (
            f"{found.right:,} of {count:,} are taken for their prompt; 95\N{NO-BREAK SPACE}% interval {low} to {high}"
        )
        real = f"of the real images {percent(found.real_right / count)}"
        yield figure("Prompt accuracy", found.right / count, percent, f"{note}; {real}")
    for score in found.scores:
        yield figure(score.title, score.value, plain, _note(score, count))
    yield figure("Images", count, "{:,.0f}".format, f"of {len(set(found.prompts)):,} held-out prompts")


def _note(score: Score, count: int) -> str:
    if score.is_distance:
        return (
            f"of {count:,} images and {score.against:,} real ones; real images have {plain(score.real)}; less is better"
        )
    return f"mean of {count:,}; the real images themselves have {plain(score.real)}; more is better"


def _prompted(found: Evaluation, prompt: str) -> Prompted:
    places = [place for place, one in enumerate(found.prompts) if one == prompt]
    note = f"{len(places):,} drawn"
    if found.telling is not None:
        note += f", {sum(found.telling.drawn[place] == prompt for place in places):,} taken for it"
    shown = torch.tensor(places[:MOST_IMAGES])
    strips = strip_of("Real", found.targets[shown], prompt), strip_of("Drawn", found.images[shown], prompt)
    return Prompted(prompt=prompt, note=note, strips=strips)


def _mistaken(found: Evaluation, place: int, taken: str) -> Mistaken:
    prompt = found.prompts[place]
    return Mistaken(prompt=prompt, taken=taken, strip=strip_of("Drawn", found.images[place : place + 1], prompt))


def _wrong(found: Evaluation) -> list[tuple[int, str]]:
    """Places of images that were taken for something else, and for what."""
    told = () if found.telling is None else found.telling.drawn
    return [(place, taken) for place, taken in enumerate(told) if taken != found.prompts[place]]
