"""Image folders: every image is checked, and bad ones are listed or skipped on request."""

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_images import PROMPTS, bar, tiny_model, write_images

from trainers.dit.errors import DataError
from trainers.dit.images import ImageFolder, ImageFormat, as_floats, decode, read_pictures
from trainers.media.metadata import RejectedFile, describe_rejections

FORM = ImageFormat(1, 8, 8)


def accept_prompt(_prompt: str) -> None:
    """A check that accepts every prompt."""


def read(folder: Path, *, skip_bad: bool = False) -> ImageFolder:
    return read_pictures(folder, FORM, accept_prompt, skip_bad=skip_bad)


def test_images_come_with_their_prompts_in_the_order_of_metadata(tmp_path: Path) -> None:
    pictures = read(write_images(tmp_path, 6))
    assert [one.file for one in pictures.pictures] == [f"images/{number:04d}.png" for number in range(6)]
    assert [one.prompt for one in pictures.pictures] == [*PROMPTS, *PROMPTS[:2]]
    assert pictures.prompts == PROMPTS
    whole = torch.from_numpy(np.array(bar(PROMPTS[1], 1)))
    torch.testing.assert_close(pictures.pixels([1])[0, 0], as_floats(whole))
    assert as_floats(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [-1, 1]


def test_the_digest_follows_pixels_and_prompts_and_not_names(tmp_path: Path) -> None:
    first, again = read(write_images(tmp_path / "a", 3)), read(write_images(tmp_path / "b", 3))
    assert first.digest == again.digest
    write_images(tmp_path / "c", 3)
    bar(PROMPTS[0], 99).save(tmp_path / "c" / "images" / "0000.png")
    assert read(tmp_path / "c").digest != first.digest
    (tmp_path / "b" / "metadata.csv").write_text(
        (tmp_path / "b" / "metadata.csv").read_text().replace("|a bar on the left", "|a bar on the right")
    )
    assert read(tmp_path / "b").digest != first.digest


def test_some_images_are_always_the_same_and_of_many_prompts_also_where_a_folder_is_sorted(tmp_path: Path) -> None:
    pictures = read(write_images(tmp_path, 40))
    one_after_the_other = replace(pictures, pictures=tuple(sorted(pictures.pictures, key=lambda one: one.prompt)))
    some = one_after_the_other.sample(12)
    assert len(some.pictures) == 12
    assert {one.prompt for one in some.pictures} == set(PROMPTS)
    assert list(some.pictures) == [one for one in one_after_the_other.pictures if one in some.pictures]
    assert one_after_the_other.sample(12) == some
    assert one_after_the_other.sample(40) == one_after_the_other.sample(99) == one_after_the_other


def add_bad_images(folder: Path) -> dict[str, str]:
    """Nine bad images next to three good ones, and the message about each."""
    Image.new("L", (8, 9)).save(folder / "tall.png")
    Image.new("RGB", (8, 8)).save(folder / "colours.png")
    Image.new("P", (8, 8)).save(folder / "palette.png")
    Image.new("I;16", (8, 8)).save(folder / "deep.png")
    (folder / "broken.png").write_bytes(b"no image")
    whole = (folder / "images" / "0000.png").read_bytes()
    (folder / "cut.png").write_bytes(whole[: len(whole) // 2])
    names = ("tall", "colours", "palette", "deep", "broken", "cut", "gone")
    lines = [f"{name}.png|a bar on the left" for name in names]
    lines += ["images/0001.png|again", "../out.png|a bar", "wordless.png|", "one|two|three"]
    with (folder / "metadata.csv").open("a", encoding="utf-8") as file:
        file.write("\n".join(lines))
    return {
        "tall.png": "is 8x9, but the model draws 8x8",
        "colours.png": "has mode RGB (3 channels), but the VAE reads L",
        "palette.png": "has mode P",
        "deep.png": "has mode I;16",
        "broken.png": "cannot be decoded as an image",
        "cut.png": "cannot be decoded as an image",
        "gone.png": "gone.png does not exist",
        "images/0001.png": "the file is on lines 3, 13",
        "../out.png": "leads out of the folder",
        "wordless.png": "has no prompt",
        "one": "is not file|prompt",
    }


def test_bad_images_are_reported_together(tmp_path: Path) -> None:
    expected = add_bad_images(write_images(tmp_path, 4))
    with pytest.raises(DataError) as refused:
        read(tmp_path)
    first, *others = refused.value.message.splitlines()
    assert first == "11 of 14 images cannot be used; fix them, or leave them out with --skip-bad:"
    assert len(others) == len(expected)
    assert all(any(f"  {name}: " in line and told in line for line in others) for name, told in expected.items())


def test_bad_images_are_left_out_where_that_is_wanted_and_stay_visible(tmp_path: Path) -> None:
    expected = add_bad_images(write_images(tmp_path, 4))
    pictures = read(tmp_path, skip_bad=True)
    assert [one.file for one in pictures.pictures] == ["images/0000.png", "images/0002.png", "images/0003.png"]
    assert {one.name: expected[one.name] in one.reason for one in pictures.refused} == dict.fromkeys(expected, True)


def of_sixteen_bits(kind: int, channels: int) -> bytes:
    """A 16-bit PNG of 8x8 pixels, kind 0 for grey and 2 for colour."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", 8, 8, 16, kind, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes(8 * 2 * channels)) * 8)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("content", "channels", "told"),
    [
        (of_sixteen_bits(2, 3), 3, "does not have 8 bits per channel"),
        (of_sixteen_bits(0, 1), 1, "has mode I;16"),
        (b"P6 8 8 65535\n" + bytes(8 * 8 * 6), 3, "does not have 8 bits per channel"),
    ],
)
def test_bits_that_the_vae_ignores_are_reported(content: bytes, channels: int, told: str, tmp_path: Path) -> None:
    (tmp_path / "deep.png").write_bytes(content)
    with pytest.raises(DataError, match=told):
        decode(tmp_path / "deep.png", ImageFormat(channels, 8, 8))


def test_a_name_on_many_lines_is_reported_by_the_first(tmp_path: Path) -> None:
    folder = write_images(tmp_path, 1, ["twice.png|a bar"] * 5000)
    (left,) = read(folder, skip_bad=True).refused
    assert left.reason.startswith("the file is on lines 3, 4, 5, ")
    assert left.reason.endswith(", 22 and 4,980 more of metadata.csv; keep one")


def test_an_image_that_a_viewer_would_turn_or_move_is_refused(tmp_path: Path) -> None:
    one, other = bar(PROMPTS[0], 1), bar(PROMPTS[1], 2)
    exif = Image.Exif()
    exif[0x0112] = 6
    one.save(tmp_path / "turned.jpg", exif=exif)
    one.save(tmp_path / "moving.png", save_all=True, append_images=[other])
    exif[0x0112] = 1
    one.save(tmp_path / "upright.jpg", exif=exif)
    (tmp_path / "metadata.csv").write_text("turned.jpg|a bar\nmoving.png|a bar\nupright.jpg|a bar")
    pictures = read(tmp_path, skip_bad=True)
    assert [one.file for one in pictures.pictures] == ["upright.jpg"]
    turned, moving = (left.reason for left in pictures.refused)
    assert "turned.jpg is stored rotated (EXIF orientation 6)" in turned
    assert "moving.png is animated" in moving


@pytest.mark.parametrize("content", [b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n", b"DDS |" + bytes(200)])
def test_a_file_of_a_kind_that_is_no_picture_of_pixels_is_not_opened(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "odd.png").write_bytes(content)
    (tmp_path / "metadata.csv").write_text("odd.png|a bar")
    with pytest.raises(DataError, match=r"odd\.png cannot be decoded as an image"):
        read(tmp_path)


def test_twenty_bad_images_are_listed_and_of_more_the_number() -> None:
    bad = [RejectedFile(f"{number}.png", "broken") for number in range(22)]
    assert describe_rejections(bad[:20], 0, "images").splitlines()[-1] == "  19.png: broken"
    assert describe_rejections(bad, 0, "images").splitlines()[-2:] == ["  19.png: broken", "  and 2 more"]


def test_one_bad_image_of_a_thousand_is_found_and_named(tmp_path: Path) -> None:
    folder = write_images(tmp_path, 1000)
    (folder / "images" / "0617.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"1 of 1000 images .*\n  images/0617.png: .* cannot be decoded"):
        read(folder)
    assert len(read(folder, skip_bad=True).pictures) == 999


def test_a_prompt_longer_than_the_encoder_reads_is_refused_by_its_count(tmp_path: Path) -> None:
    model = tiny_model()
    folder = write_images(tmp_path, 3, ["images/0000.png|a", "long.png|" + "a bar on the left " * 3])
    bar(PROMPTS[0], 7).save(folder / "long.png")
    model.prompts.check("a bar on the left " * 2)  # 12, with its beginning and end
    with pytest.raises(DataError, match="has 17 tokens, but the text encoder reads 12"):
        read_pictures(folder, model.image_format, model.prompts.check)
    left = read_pictures(folder, model.image_format, model.prompts.check, skip_bad=True).refused
    assert "long.png" in [one.name for one in left]


def test_a_prompt_with_something_unknown_is_refused() -> None:
    model = tiny_model()
    with pytest.raises(DataError, match="has 'ß7', which the tokenizer does not know"):
        model.prompts.check("a bar ß7")


@pytest.mark.parametrize("column", ["source_images", "source"])
def test_images_as_a_condition_are_refused_by_name(column: str, tmp_path: Path) -> None:
    (tmp_path / "metadata.csv").write_text(f"file|prompt|{column}\na.png|a bar|b.png\n")
    with pytest.raises(DataError, match=f"has a column {column}, but images are drawn only from prompts"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "has no metadata.csv"),
        (b"", "lists no images"),
        (b"file|prompt\n", "lists no images"),
        (b"file|text\na.png|b\n", "has the columns file|text"),
        (b"a.png|\xff\n", "is not in UTF-8 .line 1, byte 0xff"),
    ],
)
def test_a_folder_without_usable_metadata_is_refused(content: bytes | None, told: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "metadata.csv").write_bytes(content)
    with pytest.raises(DataError, match=told.replace("|", r"\|")):
        read(tmp_path)


def test_an_image_that_changes_between_check_and_use_is_refused(tmp_path: Path) -> None:
    pictures = read(write_images(tmp_path, 2))
    bar(PROMPTS[0], 50).save(tmp_path / "images" / "0000.png")
    with pytest.raises(DataError, match=r"0000.png has changed since it was checked"):
        pictures.pixels([0, 1])
