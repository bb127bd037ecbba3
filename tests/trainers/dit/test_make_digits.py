"""The digits example writes a folder that the trainer accepts."""

from pathlib import Path
from typing import Any

import pytest
import torch

from examples.make_digits import digits, make, prompt_of, standardize, tokenizer_of, vae_of
from trainers.dit.images import read_pictures
from trainers.dit.models import ImageModel


@pytest.mark.slow
def test_images_and_model_fit_one_another(tmp_path: Path) -> None:
    make(tmp_path / "digits", steps=2)
    model = ImageModel.load(tmp_path / "digits" / "base")
    pictures = read_pictures(tmp_path / "digits" / "images", model.image_format, model.prompts.check)
    assert len(pictures.pictures) == 1400
    assert sorted(pictures.prompts) == sorted(prompt_of(digit) for digit in range(10))
    pixels, targets = digits()
    assert [one.prompt for one in pictures.pictures[:50]] == [prompt_of(int(digit)) for digit in targets[:50]]
    assert torch.equal(((pictures.pixels([7]) + 1) * 127.5).round().to(torch.uint8)[0, 0], pixels[7])
    mean = model.latents.encode(pictures.pixels(range(1400))).mean
    torch.testing.assert_close(mean.mean((0, 2, 3)), torch.zeros(4), atol=1e-3, rtol=0)
    torch.testing.assert_close(mean.std((0, 2, 3)), torch.ones(4), atol=1e-3, rtol=0)


def test_standard_latents_draw_the_same_and_vary_in_proportion() -> None:
    pixels = digits()[0][:200, None].float() / 127.5 - 1
    vae: Any = vae_of(pixels, 0)
    vae.quant_conv.bias.data += torch.tensor([1.0, -2.0, 3.0, 0.0, 0.5, 0.0, -0.5, 0.1])
    with torch.no_grad():
        before = vae.encode(pixels).latent_dist
        drawn = vae.decode(before.mean).sample
        standardize(vae, pixels)
        after = vae.encode(pixels).latent_dist
        torch.testing.assert_close(vae.decode(after.mean).sample, drawn, atol=1e-4, rtol=0)
    ratio = (before.std / after.std).mean((0, 2, 3))
    torch.testing.assert_close(ratio, before.mean.std((0, 2, 3)), atol=1e-4, rtol=1e-4)


def test_every_word_of_a_prompt_is_one_token() -> None:
    words = prompt_of(7).split()
    assert len(tokenizer_of(words)(prompt_of(7)).input_ids) == len(words) + 2


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(SystemExit, match="is not empty"):
        make(tmp_path)
