"""Reward statistics by hand, and early errors for missing inputs."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_images import PROMPTS, bar, tiny_tokenizer, write_images
from torch import Tensor
from torch.nn import functional
from transformers import CLIPConfig, CLIPModel

from trainers.dit.errors import RewardError
from trainers.dit.images import ImageFolder, ImageFormat, read_pictures
from trainers.dit.rewards import (
    ClipSimilarity,
    FrechetDistance,
    Reward,
    RewardInputs,
    RewardKind,
    create_reward,
    create_rewards,
    frechet_distance,
    psnr,
    read_pixels,
    ssim,
    train_classifier,
)


def pictures_of(folder: Path, count: int) -> ImageFolder:
    return read_pictures(write_images(folder, count), ImageFormat(1, 8, 8), lambda _: None)


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> RewardInputs:
    place = tmp_path_factory.mktemp("rewards")
    return RewardInputs(pictures_of(place / "own", 64), pictures_of(place / "held", 24), count=16)


def held_out_images(material: RewardInputs, count: int = 16) -> tuple[Tensor, list[str]]:
    held = material.held_out.sample(count)
    return read_pixels(held), [one.prompt for one in held.pictures]


def test_psnr_is_ten_decibels_for_each_tenth_of_the_error() -> None:
    zeros = torch.zeros(3, 1, 4, 4)
    images = torch.stack([torch.full((1, 4, 4), value) for value in (0.1, 1.0, 0.0)])
    torch.testing.assert_close(psnr(images, zeros), torch.tensor([20.0, 0.0, 100.0]))


def test_ssim_is_that_of_the_formula() -> None:
    flat = ssim(torch.full((1, 3, 12, 12), 0.2), torch.full((1, 3, 12, 12), 0.6))
    assert flat.item() == pytest.approx((2 * 0.12 + 1e-4) / (0.04 + 0.36 + 1e-4), rel=1e-3)
    images = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ssim(images, images), torch.ones(2))
    line = torch.tensor([math.exp(-((place - 1) ** 2) / 4.5) for place in range(3)])
    weights, image, other = torch.outer(line, line) / line.sum() ** 2, images[0, 0, :3, :3], images[1, 0, :3, :3]
    one, two = (weights * image).sum(), (weights * other).sum()
    spread = (weights * (image - one) ** 2).sum(), (weights * (other - two) ** 2).sum()
    shared = (weights * (image - one) * (other - two)).sum()
    wanted = (2 * one * two + 1e-4) * (2 * shared + 9e-4) / ((one**2 + two**2 + 1e-4) * (sum(spread) + 9e-4))
    found = ssim(image[None, None], other[None, None])
    torch.testing.assert_close(found[0], wanted, rtol=1e-4, atol=1e-5)


def test_frechet_distance_is_that_of_two_normal_distributions() -> None:
    draw = torch.randn(5000, 2, generator=torch.Generator().manual_seed(1))
    whitened = (draw - draw.mean(0)) @ torch.linalg.inv(torch.linalg.cholesky(torch.cov(draw.T)).T)
    widen_resamples = whitened * torch.tensor([3.0, 0.5]) + torch.tensor([1.0, -2.0])
    # of diagonal covariances: squared distance of the means, and of the deviations
    assert frechet_distance(whitened, widen_resamples) == pytest.approx(1 + 4 + (3 - 1) ** 2 + 0.5**2, rel=1e-4)
    assert frechet_distance(draw, draw) == pytest.approx(0, abs=1e-9)
    # variances of 2 and of 8, not of 1 and 4
    assert frechet_distance(torch.tensor([[0.0], [2]]), torch.tensor([[0.0], [4]])) == pytest.approx(1 + 2)


def test_real_images_are_counted_from_black_to_white_as_drawn_ones_are(material: RewardInputs) -> None:
    images = read_pixels(material.held_out)
    wanted = torch.from_numpy(np.stack([np.array(bar(PROMPTS[number], number)) for number in range(3)]) / 255)
    torch.testing.assert_close(images[:3, 0], wanted.float())


def test_the_classifier_learns_prompts_from_images_and_touches_no_random_stream(material: RewardInputs) -> None:
    before = torch.get_rng_state()
    judge = train_classifier(material.pictures)
    assert torch.equal(torch.get_rng_state(), before)
    images, prompts = held_out_images(material, 24)
    assert judge.accuracy(images, prompts) == 1.0
    reward = create_reward("classifier", material)
    right, wrong = reward(images, prompts, images), reward(images, [*prompts[1:], prompts[0]], images)
    torch.testing.assert_close(right, judge(images).softmax(1)[torch.arange(24), torch.arange(24) % 4])
    assert float(right.min()) > 0.5 > float(wrong.max())


def test_frechet_distances_are_of_one_number_of_images_with_the_floor_beside(material: RewardInputs) -> None:
    reward = create_reward("frechet", material)
    images, prompts = held_out_images(material)
    inner = reward.reward
    assert isinstance(inner, FrechetDistance)
    assert reward.facts == {"images": 16, "against": 24, "floor": inner.floor}
    judge = train_classifier(material.pictures)
    real = judge.features(read_pixels(material.held_out))
    assert inner.floor == pytest.approx(
        frechet_distance(judge.features(read_pixels(material.pictures.sample(16))), real)
    )
    said = reward(images, prompts, images)
    assert said.tolist() == pytest.approx([-frechet_distance(judge.features(images), real)] * 16)
    assert float(reward(torch.rand(16, 1, 8, 8), prompts, images)[0]) < float(said[0]) - inner.floor
    others = 1 - read_pixels(material.pictures)
    floor = frechet_distance(judge.features(others[:16]), real)
    assert FrechetDistance(judge, read_pixels(material.held_out), others, 16).floor == pytest.approx(floor)
    with pytest.raises(RewardError, match=r"of 8 images cannot be compared with the floor of 16"):
        reward(images[:8], prompts[:8], images[:8])
    with pytest.raises(
        RewardError, match=r"of 25 images needs as many held-out and training images.*there are 24 and 25"
    ):
        create_reward("frechet", RewardInputs(material.pictures, material.held_out, count=25))


def test_likeness_is_that_of_images_and_targets(material: RewardInputs) -> None:
    images, prompts = held_out_images(material)
    assert create_reward("ssim", material)(images, prompts, images).tolist() == pytest.approx([1.0] * 16)
    assert torch.equal(create_reward("psnr", material)(images, prompts, 1 - images), psnr(images, 1 - images))


def a_clip(folder: Path) -> CLIPModel:
    torch.manual_seed(4)
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    tokenizer = tiny_tokenizer()
    text = {"vocab_size": len(tokenizer), "max_position_embeddings": 12, "bos_token_id": 0, "eos_token_id": 1}
    config = CLIPConfig(
        text_config={**small, **text, "pad_token_id": 1},
        vision_config={**small, "image_size": 16, "patch_size": 8},
        projection_dim=8,
    )
    model = CLIPModel(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def test_clip_is_the_cosine_of_its_embeddings_from_a_folder(material: RewardInputs, tmp_path: Path) -> None:
    model = a_clip(tmp_path / "clip")
    images, prompts = held_out_images(material, 4)
    said = create_reward("clip", RewardInputs(material.pictures, material.held_out, tmp_path / "clip", 4))(
        images, prompts, images
    )
    sized = functional.interpolate(images.repeat(1, 3, 1, 1), (16, 16), mode="bicubic", antialias=True).clamp(0, 1)
    mean, deviation = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    pixels = (sized - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(deviation).view(3, 1, 1)
    tokens = tiny_tokenizer()(prompts, padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**tokens, pixel_values=pixels).logits_per_image / model.logit_scale.exp()
    torch.testing.assert_close(said, logits.diagonal())
    ClipSimilarity(model.train(), tiny_tokenizer())
    assert not any(part.training for part in model.modules())


def test_clip_without_weights_is_refused(material: RewardInputs, tmp_path: Path) -> None:
    with pytest.raises(RewardError, match="clip needs a local folder of a CLIP model"):
        create_reward("clip", material)
    with pytest.raises(RewardError, match=r"nowhere cannot be read as a CLIP model"):
        create_reward("clip", RewardInputs(material.pictures, material.held_out, tmp_path / "nowhere"))


def test_what_cannot_be_had_is_refused_by_name(material: RewardInputs, tmp_path: Path) -> None:
    with pytest.raises(RewardError, match="'beauty' is not a reward; choose from classifier, ssim"):
        create_reward("beauty", material)
    with pytest.raises(RewardError, match="reward ssim reads no weights"):
        create_rewards(("ssim",), RewardInputs(material.pictures, material.held_out, tmp_path))
    train_classifier(pictures_of(tmp_path / "enough", 32))
    few = pictures_of(tmp_path / "few", 31)
    with pytest.raises(RewardError, match="31 images of 4 prompts; a classifier needs"):
        create_reward("classifier", RewardInputs(few, material.held_out))
    others = ImageFolder(few.folder, few.image_format, tuple(few.pictures[:3]), ())
    with pytest.raises(RewardError, match=f"has no training image of '{PROMPTS[3]}'"):
        train_classifier(ImageFolder(few.folder, few.image_format, others.pictures * 8, ())).classes(PROMPTS)


class ConstantReward:
    """A constant reward."""

    def __init__(self, said: Tensor) -> None:
        self._said = said

    def __call__(self, images: Tensor, prompts: Sequence[str], targets: Tensor) -> Tensor:
        assert len(images) == len(prompts) == len(targets)
        return self._said


def broken_reward(said: Tensor) -> Reward:
    return ConstantReward(said)


def test_a_reward_that_is_no_number_is_refused_before_a_training_starts(material: RewardInputs) -> None:
    values = torch.zeros(16)
    values[5] = math.nan
    wrong = material.held_out.sample(16).pictures[5].prompt
    with pytest.raises(RewardError, match=f"reward mine is nan for an image of '{wrong}'.* 1 of 16 images"):
        create_reward("mine", material, {"mine": RewardKind(lambda _: broken_reward(values))})
    with pytest.raises(RewardError, match=r"reward mine has shape \[3\] for 16 images"):
        create_reward("mine", material, {"mine": RewardKind(lambda _: broken_reward(torch.zeros(3)))})
