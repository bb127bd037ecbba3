"""A folder of images with their prompts, checked one by one: all of the size and the channels that the model draws.

Nothing is scaled, cropped or converted in silence.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, final

import numpy as np
import torch
from PIL import Image
from PIL.ImageFile import ImageFile
from torch import Tensor

from trainers.dit.errors import DataError, ImageError
from trainers.media.metadata import (
    FILE,
    MetadataRow,
    RejectedFile,
    has_control,
    leaves,
    lines_of,
    listed,
    normal_text,
    rows_of,
    sorted_out,
)

COLUMNS: Final = 2

CONDITIONS: Final = ("source_images", "source_image", "source")
"""What others call images that an image is made of."""


@dataclass(frozen=True, slots=True)
class CaptionLine:
    """What a line says.

    Attributes:
        file: path of the image below the folder.
        prompt: in composed characters, with one blank for any white space.
    """

    file: str
    prompt: str


def read_metadata(source: Path) -> tuple[tuple[CaptionLine, ...], tuple[RejectedFile, ...]]:
    """The lines of `source/metadata.csv`, and those that say nothing usable.

    Raises:
        DataError: There is no such file, it is empty, not in UTF-8, or gives images as a condition.
    """
    path = source / FILE
    rows = rows_of(path, _content(source), DataError)
    if rows and rows[0].cells[:1] == ("file",):
        _check_heading(path, rows[0].cells)
        rows = rows[1:]
    if not rows:
        raise DataError(f"{path} names no image; write a line per image: file|prompt")
    return sorted_out(rows, _file, _problem, lambda row: CaptionLine(_file(row), normal_text(row.cells[1])))


def _check_heading(path: Path, names: Sequence[str]) -> None:
    conditions = [name for name in names if name.lower() in CONDITIONS]
    if conditions:
        raise DataError(
            f"{path} has a column {conditions[0]}: images as a condition are not supported, a prompt is all that an "
            "image is made from; leave the column out"
        )
    if tuple(names) != ("file", "prompt"):
        raise DataError(f"{path} has the columns {'|'.join(names)}; they must be file|prompt")


def _content(source: Path) -> bytes:
    """The bytes of the file."""
    path = source / FILE
    if not source.is_dir():
        raise DataError(f"there is no folder {source}; name the one that holds {FILE} and the images")
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{source} has no {FILE}; write one with a line per image: file|prompt") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})") from error


def _file(row: MetadataRow) -> str:
    return row.cells[0]


def _problem(row: MetadataRow, numbers: Sequence[int]) -> str:
    """What is wrong with a line; empty where nothing is."""
    where = f"line {row.number} of {FILE}"
    if len(row.cells) != COLUMNS or not row.cells[0]:
        return f"{where} is not file|prompt, with one | between them; mend it"
    if len(numbers) > 1:
        return f"it stands on lines {lines_of(numbers)} of {FILE}; keep one"
    if leaves(row.cells[0]):
        return f"{where} leads out of the folder; name an image in it"
    if not row.cells[1]:
        return f"{where} has no prompt; write what is to be seen, or remove the line"
    if has_control(normal_text(row.cells[1])):
        return f"{where} has a prompt with a control character; remove it"
    return ""


MODES: Final = {1: "L", 3: "RGB"}
"""What Pillow calls images of so many channels, of 8 bits each."""


FORMATS: Final = ("PNG", "JPEG", "WEBP", "AVIF", "TIFF", "BMP", "GIF", "PPM")
"""Files that are read; Pillow knows more, some of which it gives to other programs."""


UNREADABLE: Final = (OSError, SyntaxError, ValueError, TypeError, RuntimeError, Image.DecompressionBombError)
"""What Pillow raises of damaged files of these."""


DEEP: Final = ";16"
"""What Pillow's names of how pixels are stored have in them where these have 16 bits, of which it would keep 8."""


SCALED: Final = "ppm"
"""What Pillow reads PPM files by whose brightest pixel is not 255."""


PHOTOGRAPH: Final = "MPO"
"""What Pillow calls a JPEG that carries something besides its image, such as the distances in it."""


ORIENTATION: Final = 0x0112
"""The field of EXIF that tells how an image is to be turned to stand upright; 1: not at all."""


@dataclass(frozen=True, slots=True)
class ImageFormat:
    """What an image must be.

    Attributes:
        channels: 1 for grey, 3 for colours.
        height: in pixels.
        width: in pixels.
    """

    channels: int
    height: int
    width: int

    def __str__(self) -> str:
        """As in 28x28 in L."""
        return f"{self.width}x{self.height} in {MODES.get(self.channels, f'{self.channels} channels')}"


@dataclass(frozen=True, slots=True)
class PromptedImage:
    """One image with its prompt.

    Attributes:
        file: path below its folder.
        prompt: what is to be seen.
        digest: sha256 of prompt, size and pixels, in hexadecimal.
    """

    file: str
    prompt: str
    digest: str


@final
@dataclass(frozen=True, slots=True)
class ImageFolder:
    """The images of a folder, checked.

    Attributes:
        folder: where they are.
        form: of each of them.
        pictures: in the order of metadata.csv.
        refused: what was left out, and why.
    """

    folder: Path
    form: ImageFormat
    pictures: tuple[PromptedImage, ...]
    refused: tuple[RejectedFile, ...]

    @property
    def prompts(self) -> tuple[str, ...]:
        """Each prompt once, in the order in which they come."""
        return tuple(dict.fromkeys(picture.prompt for picture in self.pictures))

    @property
    def digest(self) -> str:
        """Of prompts and pixels, in their order."""
        return hashlib.sha256("\n".join(picture.digest for picture in self.pictures).encode()).hexdigest()

    def some(self, count: int) -> "ImageFolder":
        """So many of the images, all where there are no more: by chance, always the same ones, in their order.

        Not the first ones, for in a folder that is sorted by prompt those show one thing.
        """
        order = torch.randperm(len(self.pictures), generator=torch.Generator().manual_seed(0))
        return replace(self, pictures=tuple(self.pictures[place] for place in sorted(order[:count].tolist())))

    def pixels(self, index: Sequence[int]) -> Tensor:
        """Some of the images, float32 [N, channels, height, width], -1 to 1.

        Raises:
            DataError: One of them is not as it was when it was checked.
        """
        return as_floats(torch.stack([self._read(self.pictures[place]) for place in index]))

    def _read(self, picture: PromptedImage) -> Tensor:
        pixels = decode(self.folder / picture.file, self.form)
        if content_digest(picture.prompt, pixels) != picture.digest:
            raise DataError(f"{self.folder / picture.file} has changed since it was checked; start again")
        return pixels


def read_pictures(
    source: Path,
    form: ImageFormat,
    check_prompt: Callable[[str], None],
    *,
    skip_bad: bool = False,
    tell: Callable[[int, int], None] = lambda _done, _total: None,
) -> ImageFolder:
    """Check every image of a folder, and its prompt.

    Args:
        source: the folder of metadata.csv.
        form: what an image must be.
        check_prompt: raises an `ImageError` for a prompt that cannot be read.
        skip_bad: whether images that cannot be used are left out; else one is enough to refuse the folder.
        tell: called after each image with how many are done, and of how many.

    Raises:
        DataError: The folder or its metadata.csv cannot be used, or images cannot and may not be left out; the message
            lists them.
    """
    lines, refused = read_metadata(source)
    bad, pictures = list(refused), list[PromptedImage]()
    for done, line in enumerate(lines, start=1):
        try:
            check_prompt(line.prompt)
            pictures.append(_checked(source, line, form))
        except ImageError as error:
            bad.append(RejectedFile(line.file, error.message))
        tell(done, len(lines))
    if bad and not (pictures and skip_bad):
        raise DataError(listed(bad, len(pictures), "images"))
    return ImageFolder(source, form, tuple(pictures), tuple(bad))


def decode(path: Path, form: ImageFormat) -> Tensor:
    """The pixels of an image, uint8 [channels, height, width].

    Raises:
        DataError: There is no such file, it cannot be decoded, or it has another form.
    """
    try:
        with Image.open(path, formats=FORMATS) as image:
            _check_form(path, image, form)
            pixels = np.array(image)
            _check_alone(path, image)
    except FileNotFoundError as error:
        raise DataError(f"there is no {path}; mend its line in {FILE}, or remove it") from error
    except UNREADABLE as error:
        raise DataError(f"{path} cannot be decoded as an image ({error}); replace it") from error
    return torch.from_numpy(pixels.reshape(form.height, form.width, form.channels)).permute(2, 0, 1).contiguous()


def as_floats(pixels: Tensor) -> Tensor:
    """Pixels of 8 bits, uint8 [...], as a VAE reads them: float32 [...], -1 to 1."""
    return pixels.float() / 127.5 - 1


def content_digest(prompt: str, pixels: Tensor) -> str:
    """What names an image by its content: of its prompt, and its pixels, uint8 [channels, height, width]."""
    head = f"{prompt}\0{list(pixels.shape)}\0".encode()
    return hashlib.sha256(head + pixels.numpy().tobytes()).hexdigest()


def _checked(source: Path, line: CaptionLine, form: ImageFormat) -> PromptedImage:
    return PromptedImage(line.file, line.prompt, content_digest(line.prompt, decode(source / line.file, form)))


def _check_form(path: Path, image: ImageFile, form: ImageFormat) -> None:
    if (image.width, image.height) != (form.width, form.height):
        raise DataError(
            f"{path} is {image.width}x{image.height}, and the model draws {form.width}x{form.height}; scale or crop it"
        )
    if image.mode != MODES.get(form.channels):
        raise DataError(
            f"{path} has mode {image.mode} ({len(image.getbands())} channels), and the VAE reads "
            f"{MODES.get(form.channels, f'{form.channels} channels')}; convert it"
        )
    if any(DEEP in str(tile.args) or tile.codec_name == SCALED for tile in image.tile):
        raise DataError(f"{path} has other than 8 bits a channel, and the VAE reads 8; convert it")


def _check_alone(path: Path, image: Image.Image) -> None:
    """Refuse what a viewer would show in another way than by the pixels that were read."""
    turned = image.getexif().get(ORIENTATION, 1)
    if turned != 1:
        raise DataError(
            f"{path} is stored turned (EXIF orientation {turned}), and a model would learn it so; turn its pixels "
            "upright, and save it without"
        )
    if image.format != PHOTOGRAPH and _moves(image):
        raise DataError(f"{path} is animated; a model learns one image: save the one that is meant")


def _moves(image: Image.Image) -> bool:
    try:
        image.seek(1)
    except EOFError:
        return False
    return True
