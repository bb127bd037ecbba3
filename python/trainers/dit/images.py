"""Folders of images with prompts; every image must have the size and channels of the model, and is never converted."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, final

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from trainers.dit.errors import DataError, ImageError
from trainers.media.metadata import (
    FILE,
    MetadataRow,
    RejectedFile,
    describe_rejections,
    has_control,
    join_line_numbers,
    leads_outside,
    normal_text,
    parse_rows,
    partition_rows,
)

COLUMNS: Final = 2

CONDITIONS: Final = ("source_images", "source_image", "source")
"""Column names of conditioning images in other formats."""


def read_metadata(source: Path) -> tuple[tuple[tuple[str, str], ...], tuple[RejectedFile, ...]]:
    """Read `source/metadata.csv`: file and normalised prompt of its usable lines, and the rejected lines.

    Raises:
        DataError: The file is missing, empty or not UTF-8, or has other columns than file and prompt.
    """
    path = source / FILE
    if not source.is_dir():
        raise DataError(f"folder {source} does not exist; give the one with {FILE} and the images")
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{source} has no {FILE}; write one with a line per image: file|prompt") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})") from error
    rows = parse_rows(path, content, DataError)
    if rows and rows[0].cells[:1] == ("file",):
        names = rows[0].cells
        conditions = [name for name in names if name.lower() in CONDITIONS]
        if conditions:
            raise DataError(
                f"{path} has a column {conditions[0]}, but images are drawn only from prompts; remove the column"
            )
        if tuple(names) != ("file", "prompt"):
            raise DataError(f"{path} has the columns {'|'.join(names)}, expected file|prompt")
        rows = rows[1:]
    if not rows:
        raise DataError(f"{path} lists no images; write a line per image: file|prompt")
    return partition_rows(
        rows, lambda row: row.cells[0], _find_problem, lambda row: (row.cells[0], normal_text(row.cells[1]))
    )


def _find_problem(row: MetadataRow, numbers: Sequence[int]) -> str:
    """What is wrong with a line, or an empty string."""
    location = f"line {row.number} of {FILE}"
    if len(row.cells) != COLUMNS or not row.cells[0]:
        return f"{location} is not file|prompt, with one | between them; fix it"
    if len(numbers) > 1:
        return f"the file is on lines {join_line_numbers(numbers)} of {FILE}; keep one"
    if leads_outside(row.cells[0]):
        return f"{location} leads out of the folder; use an image inside it"
    if not row.cells[1]:
        return f"{location} has no prompt; write what the image shows, or remove the line"
    if has_control(normal_text(row.cells[1])):
        return f"{location} has a prompt with a control character; remove it"
    return ""


MODES: Final = {1: "L", 3: "RGB"}
"""Pillow's mode by number of 8-bit channels."""


FORMATS: Final = ("PNG", "JPEG", "WEBP", "AVIF", "TIFF", "BMP", "GIF", "PPM")
"""Supported formats. Pillow reads more, but passes some of them to external programs."""


UNREADABLE: Final = (OSError, SyntaxError, ValueError, TypeError, RuntimeError, Image.DecompressionBombError)
"""Exceptions that Pillow raises for damaged files of these formats."""


SIXTEEN_BIT: Final = ";16"
"""Part of Pillow's raw mode of 16-bit pixels, of which Pillow would keep 8 bits."""


SCALED_PPM: Final = "ppm"
"""Pillow's decoder of PPM files whose maximum value is not 255."""


MULTI_PICTURE: Final = "MPO"
"""Pillow's format name of a JPEG with extra data, such as a depth map."""


ORIENTATION: Final = 0x0112
"""EXIF tag of the rotation that turns an image upright; 1 means upright."""


@dataclass(frozen=True, slots=True)
class ImageFormat:
    """Required size and channels of an image.

    Attributes:
        channels: 1 for grey, 3 for RGB.
        height: Height in pixels.
        width: Width in pixels.
    """

    channels: int
    height: int
    width: int

    def __str__(self) -> str:
        """Size and mode, such as 28x28 in L."""
        return f"{self.width}x{self.height} in {MODES.get(self.channels, f'{self.channels} channels')}"


@dataclass(frozen=True, slots=True)
class PromptedImage:
    """A checked image with its prompt.

    Attributes:
        file: Path within the folder.
        prompt: Normalised prompt.
        digest: sha256 of prompt, shape and pixels, in hexadecimal.
    """

    file: str
    prompt: str
    digest: str


@final
@dataclass(frozen=True, slots=True)
class ImageFolder:
    """Checked images of a folder.

    Attributes:
        folder: Path of the folder.
        image_format: Format of every image.
        pictures: Images in the order of metadata.csv.
        refused: Rejected images with reasons.
    """

    folder: Path
    image_format: ImageFormat
    pictures: tuple[PromptedImage, ...]
    refused: tuple[RejectedFile, ...]

    @property
    def prompts(self) -> tuple[str, ...]:
        """Distinct prompts, in order of first use."""
        return tuple(dict.fromkeys(picture.prompt for picture in self.pictures))

    @property
    def digest(self) -> str:
        """Digest of prompts and pixels, in order."""
        return hashlib.sha256("\n".join(picture.digest for picture in self.pictures).encode()).hexdigest()

    def sample(self, count: int) -> "ImageFolder":
        """Choose up to `count` images: always the same random ones, in the order of the folder.

        They are random because the first images of a folder sorted by prompt have the same prompt.
        """
        order = torch.randperm(len(self.pictures), generator=torch.Generator().manual_seed(0))
        return replace(self, pictures=tuple(self.pictures[number] for number in sorted(order[:count].tolist())))

    def pixels(self, index: Sequence[int]) -> Tensor:
        """Read images by index: float32 [N, channels, height, width], -1 to 1.

        Raises:
            DataError: An image has changed since it was checked.
        """
        images = list[Tensor]()
        for picture in (self.pictures[number] for number in index):
            image = decode(self.folder / picture.file, self.image_format)
            if hash_pixels(picture.prompt, image) != picture.digest:
                raise DataError(f"{self.folder / picture.file} has changed since it was checked; run the command again")
            images.append(image)
        return as_floats(torch.stack(images))


def read_pictures(
    source: Path,
    image_format: ImageFormat,
    check_prompt: Callable[[str], None],
    *,
    skip_bad: bool = False,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> ImageFolder:
    """Check the images and prompts of a folder.

    Args:
        source: Folder with metadata.csv.
        image_format: Required format of each image.
        check_prompt: Raises an `ImageError` for a prompt that the model cannot read.
        skip_bad: Leave out unusable images; otherwise each is an error.
        on_progress: Called after each image with the number of images checked and the total.

    Raises:
        DataError: The folder or its metadata.csv cannot be read, or images are unusable and may not be left out, or
            none is usable; the message lists them.
    """
    lines, refused = read_metadata(source)
    rejections, pictures = list(refused), list[PromptedImage]()
    for number, (file, prompt) in enumerate(lines, start=1):
        try:
            check_prompt(prompt)
            pictures.append(PromptedImage(file, prompt, hash_pixels(prompt, decode(source / file, image_format))))
        except ImageError as error:
            rejections.append(RejectedFile(file, error.message))
        on_progress(number, len(lines))
    if rejections and not (pictures and skip_bad):
        raise DataError(describe_rejections(rejections, len(pictures), "images"))
    return ImageFolder(source, image_format, tuple(pictures), tuple(rejections))


def decode(path: Path, image_format: ImageFormat) -> Tensor:
    """Decode an image: uint8 [channels, height, width].

    Raises:
        DataError: The file is missing, cannot be decoded, or has another format.
    """
    try:
        with Image.open(path, formats=FORMATS) as image:
            if (image.width, image.height) != (image_format.width, image_format.height):
                raise DataError(
                    f"{path} is {image.width}x{image.height}, but the model draws "
                    f"{image_format.width}x{image_format.height}; scale or crop it"
                )
            if image.mode != MODES.get(image_format.channels):
                raise DataError(
                    f"{path} has mode {image.mode} ({len(image.getbands())} channels), but the VAE reads "
                    f"{MODES.get(image_format.channels, f'{image_format.channels} channels')}; convert it"
                )
            if any(SIXTEEN_BIT in str(tile.args) or tile.codec_name == SCALED_PPM for tile in image.tile):
                raise DataError(f"{path} does not have 8 bits per channel; convert it")
            pixels = np.array(image)
            # Reject rotated and animated images, which viewers show differently from their decoded pixels.
            orientation = image.getexif().get(ORIENTATION, 1)
            if orientation != 1:
                raise DataError(
                    f"{path} is stored rotated (EXIF orientation {orientation}); rotate its pixels, and save it "
                    "without the tag"
                )
            if image.format != MULTI_PICTURE and _is_animated(image):
                raise DataError(f"{path} is animated; save one of its images")
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist; fix its line in {FILE}, or remove it") from error
    except UNREADABLE as error:
        raise DataError(f"{path} cannot be decoded as an image ({error}); replace it") from error
    return (
        torch.from_numpy(pixels.reshape(image_format.height, image_format.width, image_format.channels))
        .permute(2, 0, 1)
        .contiguous()
    )


def as_floats(pixels: Tensor) -> Tensor:
    """Scale pixels, uint8 [...], to the range of a VAE: float32 [...], -1 to 1."""
    return pixels.float() / 127.5 - 1


def hash_pixels(prompt: str, pixels: Tensor) -> str:
    """sha256 of a prompt and its pixels, uint8 [channels, height, width], in hexadecimal."""
    head = f"{prompt}\0{list(pixels.shape)}\0".encode()
    return hashlib.sha256(head + pixels.numpy().tobytes()).hexdigest()


def _is_animated(image: Image.Image) -> bool:
    try:
        image.seek(1)
    except EOFError:
        return False
    return True
