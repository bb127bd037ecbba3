"""Encoding and sampling of images on the requested device."""

from pathlib import Path
from typing import Any

import pytest
import torch
from one_device import META, OneDevice, TwoDevicesError
from tiny_images import PROMPTS, tiny_model, write_images
from typer.testing import CliRunner

from trainers.cli.commands import app
from trainers.dit.batches import LatentCache, write_cache
from trainers.dit.images import read_pictures
from trainers.dit.models import ImageModel
from trainers.dit.sampling import SamplingSettings, as_image, draw_images
from trainers.loop import Hardware

GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def run_dit(*words: str | Path) -> Any:
    """Run `quantra train dit …` and return its exit code."""
    return CliRunner().invoke(app, ["train", "dit", *map(str, words)])


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and images."""
    folder = tmp_path_factory.mktemp("device")
    tiny_model().learning("flow").save(folder / "model")
    write_images(folder / "images")
    return folder


def test_drawing_and_encoding_keep_to_the_device(tmp_path: Path) -> None:
    model = tiny_model().learning("flow").to(META)
    pictures = read_pictures(write_images(tmp_path), model.image_format, lambda _: None)
    with OneDevice():
        assert draw_images(model, PROMPTS, SamplingSettings(steps=4)).shape == (4, 1, 8, 8)
        posterior = model.latents.encode(pictures.pixels(range(3)).to(META))
        condition = model.prompts.embed(model.prompts.tokens(PROMPTS[:1]))
    assert {part.device for part in (*posterior, *condition)} == {META}


def test_a_part_that_stays_behind_is_seen() -> None:
    model = tiny_model().learning("flow")
    torch.nn.ModuleList([model.network.module]).to(META)
    with OneDevice(), pytest.raises(TwoDevicesError):
        draw_images(model, PROMPTS, SamplingSettings(steps=4))


@pytest.mark.parametrize("more", [("--device", "cpu"), ()])
def test_on_the_cpu_the_same_bits_are_drawn_and_kept_as_ever(
    more: tuple[str, ...], workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hardware, "detect", Hardware)  # no accelerator, for auto
    model = ImageModel.load(workspace / "model")
    as_image(draw_images(model, PROMPTS[:1], SamplingSettings(steps=4, seed=9))[0]).save(tmp_path / "wanted.png")
    drawn = ("sample", workspace / "model", "--prompt", PROMPTS[0], "--steps", "4", "--seed", "9")
    assert run_dit(*drawn, "--out", tmp_path / "found.png", *more).exit_code == 0
    assert (tmp_path / "found.png").read_bytes() == (tmp_path / "wanted.png").read_bytes()
    write_cache(
        read_pictures(workspace / "images", model.image_format, model.prompts.check), model, tmp_path / "wanted"
    )
    cached = run_dit("cache", workspace / "images", "--model", workspace / "model", "--out", tmp_path / "found", *more)
    assert cached.exit_code == 0, cached.output
    assert LatentCache.open(tmp_path / "found").digest == LatentCache.open(tmp_path / "wanted").digest


@pytest.mark.parametrize("command", ["sample", "cache"])
def test_a_device_that_is_not_there_is_refused_before_anything_is_written(
    command: str, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hardware, "detect", Hardware)
    out = tmp_path / "a.png"
    words = {
        "sample": ("sample", workspace / "model", "--prompt", PROMPTS[0], "--out", out),
        "cache": ("cache", workspace / "images", "--model", workspace / "model", "--out", out),
    }[command]
    done = run_dit(*words, "--device", "cuda")
    assert done.exit_code == 1
    assert "device 'cuda' was requested, but this machine has cpu" in str(done.exception)
    wrong = run_dit(*words, "--device", "gpu")
    assert wrong.exit_code == 2
    assert "'gpu' is not a device; use auto, cpu" in " ".join(wrong.output.replace("│", "").split())
    assert not out.exists()


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=GPU), pytest.param("auto", marks=GPU)])
def test_a_gpu_draws_and_keeps_nearly_the_same(device: str, workspace: Path, tmp_path: Path) -> None:
    model = ImageModel.load(workspace / "model")
    wanted = draw_images(model, PROMPTS, SamplingSettings(steps=4))
    found = draw_images(model.to(torch.device("cuda")), PROMPTS, SamplingSettings(steps=4))
    assert found.device.type == "cpu"
    torch.testing.assert_close(found, wanted, atol=0.02, rtol=0)
    for name, chosen in (("cpu", "cpu"), ("gpu", device)):
        done = run_dit(
            "cache", workspace / "images", "--model", workspace / "model", "--out", tmp_path / name, "--device", chosen
        )
        assert done.exit_code == 0, done.output
    one, other = (LatentCache.open(tmp_path / name).gather(torch.arange(12)) for name in ("cpu", "gpu"))
    torch.testing.assert_close(other.posterior.mean, one.posterior.mean, atol=0.01, rtol=0.01)
    drawn = run_dit(
        "sample", workspace / "model", "--prompt", PROMPTS[0], "--out", tmp_path / "a.png", "--device", device
    )
    assert drawn.exit_code == 0, drawn.output
