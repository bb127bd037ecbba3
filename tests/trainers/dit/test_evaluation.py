"""Image evaluation: its statistics and its page."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pages import HOSTILE, assert_holds_all, page_of
from tiny_images import PROMPTS, tiny_model, write_images

from trainers.dit.errors import ModelError, PriorError, RewardError
from trainers.dit.evaluation import ClassifierPredictions, ImageEvaluation, RewardScore, evaluate, wilson_interval
from trainers.dit.images import read_pictures
from trainers.dit.models import ImageModel, read_notes
from trainers.dit.page import (
    MAX_IMAGES,
    build_curves,
    build_evaluation_page,
    build_sample_page,
    build_strip,
    render_sheet,
)
from trainers.dit.recipe import SamplingSettings, reward_names
from trainers.dit.rewards import RewardInputs, create_rewards, frechet_distance, read_pixels, train_classifier
from trainers.dit.sampling import draw_images

SAMPLING = SamplingSettings(steps=3, guidance=1.5, seed=4, at_once=10)


@pytest.fixture(scope="module")
def model() -> ImageModel:
    return tiny_model().learning("flow")


@pytest.fixture(scope="module")
def material(model: ImageModel, tmp_path_factory: pytest.TempPathFactory) -> RewardInputs:
    place = tmp_path_factory.mktemp("evaluation")
    own, held = write_images(place / "own", 64), write_images(place / "held", 24)
    pictures, held_out = (read_pictures(folder, model.image_format, model.prompts.check) for folder in (own, held))
    return RewardInputs(pictures, held_out, count=16)


@pytest.fixture(scope="module")
def found(model: ImageModel, material: RewardInputs) -> ImageEvaluation:
    return evaluate(model, material, create_rewards(("classifier", "frechet", "ssim"), material), SAMPLING)


def drawn_by_hand() -> ImageEvaluation:
    """Three images of two prompts: two samples and all real images are classified correctly."""
    images = torch.stack([torch.full((1, 8, 8), shade) for shade in (0.0, 0.25, 1.0)])
    left, right = PROMPTS[:2]
    return ImageEvaluation(
        prompts=(left, right, right),
        images=images,
        targets=1 - images,
        scores=(RewardScore("frechet", "Fréchet distance", 4.25, 1.5, is_distance=True, against=7),),
        predictions=ClassifierPredictions((left, left, right), (left, right, right)),
    )


def test_figures_are_those_of_some_held_out_prompts(
    model: ImageModel, material: RewardInputs, found: ImageEvaluation
) -> None:
    prompts = [picture.prompt for picture in material.held_out.sample(16).pictures]
    images, judge = draw_images(model, prompts, SAMPLING), train_classifier(material.pictures)
    torch.testing.assert_close(found.images, images)
    assert found.correct == round(16 * judge.accuracy(images, prompts))
    assert found.real_correct == round(16 * judge.accuracy(read_pixels(material.held_out.sample(16)), prompts))
    classifier, frechet, _ = found.scores
    chances = judge(images).softmax(1).gather(1, judge.classes(prompts)[:, None])
    assert classifier.value == pytest.approx(chances.mean().item())
    real = judge.features(read_pixels(material.held_out))
    assert frechet.value == pytest.approx(frechet_distance(judge.features(images), real), rel=1e-4)
    beside = judge.features(read_pixels(material.pictures.sample(16)))
    assert frechet.real == pytest.approx(frechet_distance(beside, real), rel=1e-4)
    assert (frechet.is_distance, frechet.against) == (True, 24)


def test_real_images_are_judged_by_the_same_rewards(material: RewardInputs, found: ImageEvaluation) -> None:
    judge, targets = train_classifier(material.pictures), read_pixels(material.held_out.sample(16))
    chances = judge(targets).softmax(1).gather(1, judge.classes(found.prompts)[:, None])
    classifier, _, ssim = found.scores
    assert classifier.real == pytest.approx(chances.mean().item())
    assert ssim.real == pytest.approx(1)
    assert ssim.value < 1


def test_how_many_are_drawn_together_changes_no_image(
    model: ImageModel, material: RewardInputs, found: ImageEvaluation
) -> None:
    told: list[tuple[int, int]] = []
    again = evaluate(
        model,
        material,
        create_rewards(("ssim",), material),
        replace(SAMPLING, at_once=3),
        on_progress=lambda done, total: told.append((done, total)),
    )
    torch.testing.assert_close(again.images, found.images, atol=1e-5, rtol=0)
    assert told == [(3, 16), (6, 16), (9, 16), (12, 16), (15, 16), (16, 16)]
    assert again.predictions is None
    assert "accuracy" not in again.as_json()


def test_more_images_than_are_held_out_and_plans_that_nobody_reads_are_refused(
    model: ImageModel, material: RewardInputs
) -> None:
    ssim = create_rewards(("ssim",), material)
    with pytest.raises(RewardError, match="has prompts for only 24; draw fewer"):
        evaluate(model, replace(material, count=25), ssim, SAMPLING)
    with pytest.raises(PriorError, match="reads no prior tokens"):
        evaluate(model, material, ssim, SAMPLING, priors={})


def test_the_figures_in_words_and_for_programs_are_the_same() -> None:
    found = drawn_by_hand()
    told = found.as_json()
    assert told["accuracy"]["share"] == pytest.approx(2 / 3)
    assert told["accuracy"]["real"] == 1
    assert (told["accuracy"]["low"], told["accuracy"]["high"]) == pytest.approx((0.208, 0.939), abs=1e-3)
    assert told["scores"]["frechet"] == asdict(found.scores[0])
    first, second = found.summary
    assert first.startswith(
        "2 of 3 images are classified as their prompt: 66.7%, 95 % interval 20.8% to 93.9% (real images: 100.0%)"
    )
    assert second == "Fréchet distance: 4.25, real images 1.5 (3 images against 7 real ones; lower is better)"


def test_the_interval_of_a_share_is_wilsons() -> None:
    # 8 of 10: (0.8 + z²/20 ± z √(0.016 + z²/400)) / (1 + z²/10) with z = 1.95996
    assert wilson_interval(8, 10) == pytest.approx((0.49016, 0.94332), abs=1e-5)
    assert wilson_interval(0, 4)[0] == 0
    assert wilson_interval(4, 4)[1] == 1


def test_the_interval_of_a_share_holds_the_true_one_as_often_as_it_says() -> None:
    draw = torch.Generator().manual_seed(3)
    right = (torch.rand(4000, 60, generator=draw) < 0.9).sum(1).tolist()
    held = sum(low <= 0.9 <= high for low, high in (wilson_interval(count, 60) for count in right))
    assert held / 4000 == pytest.approx(0.95, abs=0.02)


def test_names_of_rewards_are_read_and_wrong_ones_named() -> None:
    assert reward_names("classifier, frechet") == ("classifier", "frechet")
    with pytest.raises(ValueError, match="'beauty' is not a reward; choose from"):
        reward_names("classifier,beauty")
    with pytest.raises(ValueError, match="names a reward twice"):
        reward_names("ssim,ssim")


# --- the page


def test_a_page_has_the_figures_and_every_image_that_was_taken_for_something_else() -> None:
    page = page_of(text := render_sheet(build_evaluation_page("Evaluation of mine", ("a line",), drawn_by_hand(), ())))
    assert page.numbers == pytest.approx([2 / 3, 4.25, 3])
    assert "2 of 3 are classified as their prompt; 95 % interval 20.8 % to 93.9 %; 100.0 % of the real" in page.words
    assert "3 images against 7 real ones; real images have 1.500; lower is better" in page.words
    assert f"{PROMPTS[1]} 2 drawn, 1 classified as it" in page.words
    assert f"{PROMPTS[1]} classified as: {PROMPTS[0]}" in page.words
    assert "All 1." in page.words
    assert len(page.references) == 2 * 3 + 1
    assert_holds_all(text)


def test_images_on_a_page_are_drawn_ones_beside_real_ones_and_those_that_were_mistaken() -> None:
    found = drawn_by_hand()
    sheet = build_evaluation_page("ImageEvaluation", (), found, ())
    for one, rows in zip(sheet.prompts, ([0], [1, 2]), strict=True):
        real, drawn = (
            build_strip("Real", found.targets[rows], one.prompt),
            build_strip("Drawn", found.images[rows], one.prompt),
        )
        assert one.strips == (real, drawn)
    (mistaken,) = sheet.mistaken
    assert mistaken.strip == build_strip("Drawn", found.images[1:2], PROMPTS[1])


def test_images_on_a_page_are_those_that_were_drawn(found: ImageEvaluation) -> None:
    sheet = build_evaluation_page("ImageEvaluation", (), found, ())
    assert [one.prompt for one in sheet.prompts] == [*dict.fromkeys(found.prompts)]
    real, drawn = sheet.prompts[0].strips
    assert (real.heading, drawn.heading) == ("Real", "Drawn")
    assert len(drawn.pictures) == min(MAX_IMAGES, found.prompts.count(found.prompts[0]))
    assert render_sheet(sheet) == render_sheet(build_evaluation_page("ImageEvaluation", (), found, ()))


def test_what_others_wrote_is_shown_and_not_run() -> None:
    found = drawn_by_hand()
    hostile = replace(
        found,
        prompts=(HOSTILE, *found.prompts[1:]),
        predictions=ClassifierPredictions((PROMPTS[0],) * 3, found.prompts),
    )
    text = render_sheet(build_evaluation_page(HOSTILE, (HOSTILE,), hostile, ()))
    assert HOSTILE not in text
    assert page_of(text).text.count(HOSTILE) >= 4
    assert_holds_all(text)


def test_many_prompts_and_large_images_do_not_make_a_page_large() -> None:
    count, draw = 400, torch.Generator().manual_seed(0)
    images = torch.rand(count, 3, 256, 256, generator=draw)
    found = ImageEvaluation(tuple(f"image {number}" for number in range(count)), images, images, (), None)
    text = render_sheet(build_evaluation_page("ImageEvaluation", (), found, ()))
    page = page_of(text)
    shown = len(page.references) // 2
    assert 1 <= shown < 24
    assert f"The first {shown} prompts; the scores include {400 - shown} more." in page.words
    assert len(text) < 2_000_000


def test_small_images_are_shown_of_as_many_prompts_as_a_page_may_have() -> None:
    images = torch.rand(400, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    found = ImageEvaluation(tuple(f"image {number}" for number in range(400)), images, images, (), None)
    page = page_of(render_sheet(build_evaluation_page("ImageEvaluation", (), found, ())))
    assert "The first 24 prompts; the scores include 376 more." in page.words
    assert len(page.references) == 48


@pytest.mark.parametrize(
    ("height", "width", "wanted"),
    [
        (8, 8, (64, True)),
        (48, 32, (64, True)),
        (400, 20, (8, False)),
        (100, 600, (160, False)),
        (512, 512, (160, False)),
    ],
)
def test_images_are_shown_in_their_own_shape(height: int, width: int, wanted: tuple[int, bool]) -> None:
    strip = build_strip("Drawn", torch.zeros(1, 1, height, width), "")
    assert (strip.width, strip.small) == wanted


def test_a_sample_has_a_page_with_all_its_images() -> None:
    images = torch.rand(11, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    page = page_of(render_sheet(build_sample_page("Drawn by mine", (), PROMPTS[0], images, ())))
    assert len(page.references) == 11
    assert f"{PROMPTS[0]} 11 images" in page.words
    assert "Scores" not in page.words


def test_of_very_many_images_of_one_prompt_the_first_are_shown() -> None:
    page = page_of(render_sheet(build_sample_page("Drawn", (), PROMPTS[0], torch.zeros(101, 1, 8, 8), ())))
    assert len(page.references) == 100
    assert "101 images, the first 100 shown" in page.words


def test_of_heavy_images_of_one_prompt_as_many_are_shown_as_keep_the_page_light() -> None:
    images = torch.rand(60, 3, 160, 160, generator=torch.Generator().manual_seed(0))
    text = render_sheet(build_sample_page("Drawn", (), PROMPTS[0], images, ()))
    page = page_of(text)
    assert f"60 images, the first {len(page.references)} shown" in page.words
    assert len(text) < 2_000_000


# --- training history


TRAINED: Mapping[str, Any] = {
    "recipe": {"steps": 250},
    "curves": {
        "loss": [1.5, 1.25],
        "snapshots": [
            {"window": 100, "rewards": {"classifier": 0.5, "frechet": -9.0}},
            {"window": 200, "rewards": {"classifier": 0.75, "frechet": -6.0}},
        ],
    },
    "facts": {"frechet": {"images": 256, "against": 397, "floor": 2.5}},
}
TUNED: Mapping[str, Any] = {
    "recipe": {"reward": "classifier"},
    "tuned": {"rounds": [{"reward": 0.875, "equal": 0, "groups": 10}], "snapshots": TRAINED["curves"]["snapshots"][:1]},
    "facts": TRAINED["facts"],
}


def test_curves_are_what_training_and_tuning_noted_with_distances_without_their_minus() -> None:
    loss, chance, distance, drawn, *tuned = build_curves({"training.json": TRAINED, "tuning.json": TUNED})
    assert (loss.name, loss.points) == ("Loss", ((125, 1.5), (250, 1.25)))
    assert chance.points == ((100, 0.5), (200, 0.75))
    assert distance.points == ((100, 9), (200, 6))
    assert (distance.level, distance.name) == (2.5, "Fréchet distance, held-out prompts")
    assert drawn.points == ((1, 0.875),)
    assert [curve.over for curve in tuned] == ["tuning steps"] * 2


def test_a_page_shows_the_curves_and_their_values() -> None:
    curves = build_curves({"training.json": TRAINED})
    page = page_of(text := render_sheet(build_sample_page("Drawn", (), PROMPTS[0], torch.zeros(1, 1, 8, 8), curves)))
    assert page.numbers == [1.5, 1.25, 0.5, 0.75, 9, 6]
    assert text.count("<polyline") == 3
    assert "distance of 256 real images" in page.words


def test_a_model_that_was_made_elsewhere_has_no_curves(tmp_path: Path) -> None:
    assert build_curves(read_notes(tmp_path)) == []


STRANGE: Any = {**TRAINED, "curves": {"loss": [1.5, "much"], "snapshots": []}}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"recipe": {}}',
        '{"recipe": {"steps": 5}, "curves": {"loss": "high"}}',
        json.dumps({**TRAINED, "recipe": {"steps": float("inf")}}),
        json.dumps(STRANGE),
    ],
)
def test_damaged_notes_are_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "training.json").write_text(text)
    with pytest.raises(ModelError, match=r"training\.json"):
        build_curves(read_notes(tmp_path))


def test_notes_with_infinite_losses_are_read(tmp_path: Path) -> None:
    told = {**TRAINED, "curves": {**TRAINED["curves"], "loss": [float("nan"), 1.0]}}
    (tmp_path / "training.json").write_text(json.dumps(told))
    page = page_of(
        render_sheet(build_sample_page("", (), "", torch.zeros(1, 1, 8, 8), build_curves(read_notes(tmp_path))[:1]))
    )
    assert page.numbers == [1]
