"""Image cache: training on cached encodings equals encoding in every step."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_images import (
    PROMPTS,
    WORDS,
    bar,
    tiny_encoder,
    tiny_model,
    tiny_tokenizer,
    tiny_transformer,
    tiny_vae,
    write_images,
)
from torch import Tensor

from examples.make_digits import tokenizer_of
from trainers.dit.batches import BatchRounds, EncodedImages, LatentCache, RawImageFiles, write_cache
from trainers.dit.errors import CacheError
from trainers.dit.images import ImageFolder, read_pictures
from trainers.dit.models import ImageModel
from trainers.dit.objective import create_objective
from trainers.dit.training import DenoisingLoss, NoiseSource


def some_pictures(folder: Path, model: ImageModel, count: int = 12) -> ImageFolder:
    return read_pictures(write_images(folder, count), model.image_format, model.prompts.check)


@pytest.fixture(scope="module")
def model() -> ImageModel:
    made = tiny_model()
    made.objective = create_objective("flow")
    return made


@pytest.fixture
def cache(tmp_path: Path, model: ImageModel) -> LatentCache:
    """Twelve images of four prompts."""
    return write_cache(some_pictures(tmp_path / "images", model), model, tmp_path / "cache")


def content(folder: Path) -> dict[str, bytes]:
    """Contents of all files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_loss_is_the_same_at_an_equal_random_state(cache: LatentCache, model: ImageModel, tmp_path: Path) -> None:
    plain = RawImageFiles(some_pictures(tmp_path / "images", model), model.prompts)
    learnt = DenoisingLoss(model, NoiseSource(create_objective("flow"), dropout=0.3))
    for places in (torch.arange(12), torch.tensor([3, 3, 7])):
        losses: list[float] = []
        for batch in (cache.gather(places), plain.gather(places)):
            torch.manual_seed(9)
            losses.append(learnt.loss(batch).mean.item())
        assert losses[0] == pytest.approx(losses[1], abs=1e-6)
        assert losses[0] != pytest.approx(learnt.loss(cache.gather(places)).mean.item(), abs=1e-3)


def test_it_keeps_the_posterior_and_not_one_draw(cache: LatentCache, model: ImageModel, tmp_path: Path) -> None:
    pixels = some_pictures(tmp_path / "images", model).pixels(range(12))
    vae: Any = model.latents.module
    found = vae.encode(pixels).latent_dist
    batch = cache.gather(torch.arange(12))
    torch.testing.assert_close(batch.posterior.mean, 0.7 * found.mean)
    torch.testing.assert_close(batch.posterior.deviation, 0.7 * found.std)


def test_every_image_has_the_embedding_of_its_own_prompt(cache: LatentCache, model: ImageModel) -> None:
    batch = cache.gather(torch.tensor([6, 1]))
    wanted = model.prompts.embed(model.prompts.tokens([PROMPTS[2], PROMPTS[1]]))
    torch.testing.assert_close(batch.condition.embeddings, wanted.embeddings)
    assert torch.equal(batch.condition.mask, wanted.mask)


def test_the_same_images_give_the_same_bytes(cache: LatentCache, model: ImageModel, tmp_path: Path) -> None:
    again = write_cache(some_pictures(tmp_path / "images", model), model, tmp_path / "again")
    assert content(again.folder) == content(cache.folder)


def test_images_that_are_encoded_in_parts_stand_in_their_order(
    cache: LatentCache, model: ImageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainers.dit.batches.AT_ONCE", 5)
    told: list[int] = []
    pictures = some_pictures(tmp_path / "images", model)
    parts = write_cache(pictures, model, tmp_path / "parts", lambda done, _: told.append(done))
    found, wanted = (one.gather(torch.arange(12)).posterior for one in (parts, cache))
    torch.testing.assert_close(found.mean, wanted.mean, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.deviation, wanted.deviation, atol=1e-5, rtol=0)
    assert told == [5, 10, 12]


def test_its_digest_is_another_for_other_images(cache: LatentCache, model: ImageModel, tmp_path: Path) -> None:
    bar(PROMPTS[1], 88).save(tmp_path / "images" / "images" / "0005.png")
    other = read_pictures(tmp_path / "images", model.image_format, model.prompts.check)
    assert write_cache(other, model, tmp_path / "other").digest != cache.digest


def test_what_was_left_out_stays_visible(model: ImageModel, tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", 3, ["gone.png|a bar on the top"])
    pictures = read_pictures(folder, model.image_format, model.prompts.check, skip_bad=True)
    (refused,) = LatentCache.open(write_cache(pictures, model, tmp_path / "cache").folder).contents.refused
    assert refused.name == "gone.png"
    assert "gone.png does not exist" in refused.reason


def test_it_appears_whole_or_not_at_all(model: ImageModel, tmp_path: Path) -> None:
    pictures = some_pictures(tmp_path / "images", model)
    bar(PROMPTS[0], 77).save(tmp_path / "images" / "images" / "0008.png")
    with pytest.raises(Exception, match=r"0008.png has changed"):
        write_cache(pictures, model, tmp_path / "cache")
    assert [path.name for path in tmp_path.iterdir()] == ["images"]


def test_it_is_never_written_over(cache: LatentCache, model: ImageModel, tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="already exists"):
        write_cache(some_pictures(tmp_path / "images", model), model, cache.folder)


def test_it_fits_the_model_that_made_it_whatever_its_transformer_has_learnt(cache: LatentCache) -> None:
    other = ImageModel.of(tiny_transformer(seed=1), tiny_vae(), tiny_encoder(), tiny_tokenizer())
    cache.check_model(other)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ((tiny_vae(seed=6), tiny_encoder()), "with another VAE than"),
        ((tiny_vae(), tiny_encoder(seed=4)), "with another text encoder than"),
        ((tiny_vae(seed=6), tiny_encoder(seed=4)), "with another VAE and another text encoder than"),
    ],
)
def test_another_models_encoders_are_refused_by_name(parts: tuple[Any, Any], told: str, cache: LatentCache) -> None:
    with pytest.raises(CacheError, match=told):
        cache.check_model(ImageModel.of(tiny_transformer(), *parts, tiny_tokenizer()))


def test_the_same_weights_are_another_vae_by_its_scale_and_another_encoder_by_its_tokens(cache: LatentCache) -> None:
    vae: Any = tiny_vae()
    vae.register_to_config(scaling_factor=0.8)
    with pytest.raises(CacheError, match="with another VAE than"):
        cache.check_model(ImageModel.of(tiny_transformer(), vae, tiny_encoder(), tiny_tokenizer()))
    with pytest.raises(CacheError, match="with another text encoder than"):
        cache.check_model(ImageModel.of(tiny_transformer(), tiny_vae(), tiny_encoder(), tokenizer_of(WORDS[::-1])))


def test_other_images_are_refused_by_the_first_that_differs(
    cache: LatentCache, model: ImageModel, tmp_path: Path
) -> None:
    same = some_pictures(tmp_path / "images", model)
    cache.check_pictures(same)
    bar(PROMPTS[1], 88).save(tmp_path / "images" / "images" / "0005.png")
    other = read_pictures(tmp_path / "images", model.image_format, model.prompts.check)
    with pytest.raises(CacheError, match=r"made from other images .*first difference: images/0005.png"):
        cache.check_pictures(other)


def truncate_cache(folder: Path) -> None:
    path = folder / "encoded.safetensors"
    path.write_bytes(path.read_bytes()[:-8])


def with_other_numbers(folder: Path) -> None:
    path = folder / "encoded.safetensors"
    tensors = load_file(path)
    save_file({**tensors, "mean": tensors["mean"] + 1e-3}, path)


def with_an_image_less(folder: Path) -> None:
    told = json.loads((folder / "cache.json").read_text())
    (folder / "cache.json").write_text(json.dumps({**told, "pictures": told["pictures"][1:]}))


def of_another_version(folder: Path) -> None:
    told = json.loads((folder / "cache.json").read_text())
    (folder / "cache.json").write_text(json.dumps({**told, "version": 7}))


def without_its_file(folder: Path) -> None:
    (folder / "cache.json").unlink()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (truncate_cache, "encoded.safetensors does not match its digest"),
        (with_other_numbers, "encoded.safetensors does not match its digest"),
        (with_an_image_less, "names 11 images, encoded.safetensors has 12"),
        (of_another_version, "has format version 7"),
        (without_its_file, "is not a cache: cache.json is missing"),
    ],
)
def test_a_folder_that_is_damaged_or_none_is_refused(
    spoil: Callable[[Path], None], told: str, cache: LatentCache
) -> None:
    spoil(cache.folder)
    with pytest.raises(CacheError, match=told):
        LatentCache.open(cache.folder)


class NumberImages:
    """Images that equal their indices."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def gather(self, index: Tensor) -> list[int]:
        return index.tolist()


def test_rounds_go_through_all_images_before_any_comes_again() -> None:
    rounds = BatchRounds(NumberImages(10), size=4, batches=5, seed=3)
    seen = [place for epoch in range(2) for batch in rounds.batches(epoch) for place in batch]
    assert len(seen) == 40
    assert all(sorted(seen[first : first + 10]) == list(range(10)) for first in range(0, 40, 10))
    assert seen[:10] != seen[10:20]
    assert next(BatchRounds(NumberImages(10), size=10, batches=1, seed=4).batches(0)) != seen[:10]


def test_a_batch_of_a_round_is_the_same_from_wherever_the_round_is_read() -> None:
    rounds = BatchRounds(NumberImages(7), size=9, batches=6, seed=3)
    whole = list(rounds.batches(4))
    assert [len(batch) for batch in whole] == [9] * 6
    assert list(rounds.batches(4, start=1, step=2)) == whole[1::2]


MEBIBYTE = 2**20
STATUS = Path("/proc/self/status")


def own_bytes() -> int:
    """Anonymous memory of this process."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(not STATUS.exists(), reason="only Linux tells which memory is a file's")
def test_opening_takes_no_memory_for_the_images_and_a_batch_takes_that_of_its_rows(
    cache: LatentCache, tmp_path: Path
) -> None:
    """Here 48 MiB, of which a batch reads a twelfth."""
    folder = tmp_path / "large"
    folder.mkdir()
    numbers = torch.arange(12.0)[:, None, None, None]
    large = {name: numbers.expand(-1, 4, 256, 512).contiguous() for name in ("mean", "deviation")}
    save_file({**load_file(cache.folder / "encoded.safetensors"), **large}, folder / "encoded.safetensors")
    digest = hashlib.sha256((folder / "encoded.safetensors").read_bytes()).hexdigest()
    told = json.loads((cache.folder / "cache.json").read_text())
    (folder / "cache.json").write_text(json.dumps(told | {"encoded": digest}))
    del large
    before = own_bytes()
    opened = LatentCache.open(folder)
    assert own_bytes() - before < 8 * MEBIBYTE
    for place in range(12):
        row = opened.gather(torch.tensor([place])).posterior.mean
        assert bool((row == place).all())
    assert own_bytes() - before < 24 * MEBIBYTE


def test_a_batch_is_encoded_or_plain_and_both_can_be_cut(cache: LatentCache) -> None:
    from trainers.loop import SampleSplitter

    batch = cache.gather(torch.arange(6))
    assert SampleSplitter().samples(batch) == 6
    micro_batch: EncodedImages = SampleSplitter().cut(batch, 2, 5)
    assert torch.equal(micro_batch.posterior.mean, batch.posterior.mean[2:5])
