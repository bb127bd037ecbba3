"""Batches of images, raw or encoded in advance, and the cache of encoded images.

CACHE/cache.json             images, prompts and encoders, with digests
CACHE/encoded.safetensors    posterior mean and deviation of each image, and embeddings of each prompt

The cache holds posteriors, so that each step samples new latents of an image.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar, final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from predictor.draft_folder import publish_folder
from trainers.dit.encoders import Posterior, PromptEncoder, PromptTokens
from trainers.dit.errors import CacheError
from trainers.dit.images import ImageFolder, PromptedImage
from trainers.dit.models import ImageModel
from trainers.dit.networks import PromptCondition
from trainers.dit.prompts import gather_priors
from trainers.loop import shuffle_indices
from trainers.media.metadata import RejectedFile
from trainers.media.run_directory import check_free

Batch_co = TypeVar("Batch_co", covariant=True)


class EncodedImages(NamedTuple):
    """Images as latents, and their prompts as embeddings.

    Attributes:
        posterior: Posterior of the latents; each step samples from it.
        condition: Embedded prompts.
    """

    posterior: Posterior
    condition: PromptCondition


class RawImages(NamedTuple):
    """Images and their prompts before encoding.

    Attributes:
        pixels: float32 [N, channels, height, width], -1 to 1.
        tokens: Tokens of the prompts.
        priors: Prior tokens of the images, int64 [N, priors].
    """

    pixels: Tensor
    tokens: PromptTokens
    priors: Tensor


class ImageSource(Protocol[Batch_co]):
    """Images by index."""

    def __len__(self) -> int: ...

    def gather(self, index: Tensor) -> Batch_co:
        """Gather a batch by indices, int64 [N]."""
        ...


@final
class RawImageFiles:
    """Images read from files on access.

    Args:
        pictures: Image folder.
        prompts: Encoder of the prompts.
        priors: Prior tokens of the images, int64 [images, priors], if the network reads them.
    """

    def __init__(self, pictures: ImageFolder, prompts: PromptEncoder, priors: Tensor | None = None) -> None:
        self._pictures = pictures
        self._priors = torch.zeros(len(pictures.pictures), 0, dtype=torch.long) if priors is None else priors
        distinct = pictures.prompts
        self._tokens = prompts.tokens(distinct)
        rows = {prompt: row for row, prompt in enumerate(distinct)}
        self._rows = torch.tensor([rows[picture.prompt] for picture in pictures.pictures])

    def __len__(self) -> int:
        return len(self._pictures.pictures)

    @property
    def prompts(self) -> tuple[str, ...]:
        """Distinct prompts, in order of first use."""
        return self._pictures.prompts

    @property
    def digest(self) -> str:
        """Digest of prompts and pixels."""
        return self._pictures.digest

    def gather(self, index: Tensor) -> RawImages:
        """Gather a batch by indices, int64 [N]."""
        rows = self._rows[index]
        tokens = PromptTokens(*(part[rows] for part in self._tokens))
        return RawImages(self._pictures.pixels(index.tolist()), tokens, self._priors[index])


@final
class BatchRounds(Generic[Batch_co]):
    """Rounds of full batches from an endless stream of all images, reshuffled on each pass.

    One round is an epoch of the training loop; its batches depend only on seed and round.

    Args:
        images: Source of images.
        size: Images per batch.
        batches: Batches per round, over all processes.
        seed: Seed of the shuffling.

    Attributes:
        length: Batches per round.
    """

    def __init__(self, images: ImageSource[Batch_co], *, size: int, batches: int, seed: int) -> None:
        self._images = images
        self._size = size
        self.length = batches
        self._seed = seed

    def batches(self, epoch: int, *, start: int = 0, step: int = 1) -> Iterator[Batch_co]:
        """Gather the batches of a round, counted from 0."""
        count = len(self._images)
        for number in range(start, self.length, step):
            first = (epoch * self.length + number) * self._size
            passes = range(first // count, (first + self._size - 1) // count + 1)
            orders = torch.cat([shuffle_indices(count, seed=self._seed, epoch=index) for index in passes])
            begin = first - passes[0] * count
            yield self._images.gather(orders[begin : begin + self._size])


FILE: Final = "cache.json"
ENCODED: Final = "encoded.safetensors"
VERSION: Final = 1
AT_ONCE: Final = 64
"""Images per encoding batch."""

UNCONDITIONAL: Final = ""
"""Empty prompt, which replaces dropped prompts for guidance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheContents:
    """Contents of cache.json.

    Attributes:
        vae: Digest of the VAE.
        encoder: Digest of text encoder and tokenizer.
        encoded: Digest of the tensor file.
        pictures: Images in the order of their tensors.
        refused: Rejected images with reasons.
    """

    vae: str
    encoder: str
    encoded: str
    pictures: tuple[PromptedImage, ...]
    refused: tuple[RejectedFile, ...]


@final
class LatentCache:
    """An open cache of encoded images, memory-mapped.

    Args:
        folder: Folder of the cache.
        contents: Contents of its cache.json.
        tensors: mean and deviation, float32 [images, channels, side, side]; embeddings, float32 [prompts, tokens,
            width], and mask, int64 [prompts, tokens], whose row 0 is the empty prompt; prompts, int64 [images], and
            priors, int64 [images, priors].

    Attributes:
        folder: As given.
        contents: As given.
    """

    def __init__(self, folder: Path, contents: CacheContents, tensors: Mapping[str, Tensor]) -> None:
        self.folder = folder
        self.contents = contents
        self._posterior = Posterior(tensors["mean"], tensors["deviation"])
        self._condition = PromptCondition.of(tensors["embeddings"], tensors["mask"])
        self._prompts, self._priors = tensors["prompts"], tensors["priors"]

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Read a cache.

        Raises:
            CacheError: The cache is missing, damaged, or of another version.
        """
        contents, path = read_contents(folder), folder / ENCODED
        try:
            if _hash_file(path) != contents.encoded:
                raise make_damaged_error(folder, f"{ENCODED} does not match its digest")
            tensors = load_file(path)  # memory-mapped: rows are read when a batch is gathered
        except (OSError, SafetensorError) as error:
            raise make_damaged_error(folder, f"{ENCODED} cannot be read ({error})") from error
        if len(tensors["mean"]) != len(contents.pictures):
            raise make_damaged_error(
                folder, f"{FILE} names {len(contents.pictures)} images, {ENCODED} has {len(tensors['mean'])}"
            )
        return cls(folder, contents, tensors)

    def __len__(self) -> int:
        return len(self.contents.pictures)

    @property
    def prompts(self) -> tuple[str, ...]:
        """Distinct prompts, in order of first use."""
        return tuple(dict.fromkeys(picture.prompt for picture in self.contents.pictures))

    @property
    def digest(self) -> str:
        """Digest of the tensors."""
        return self.contents.encoded

    def gather(self, index: Tensor) -> EncodedImages:
        """Gather a batch by indices, int64 [N]."""
        posterior = Posterior(*(part[index] for part in self._posterior))
        return EncodedImages(
            posterior, self._condition.rows(self._prompts[index]).with_prior_tokens(self._priors[index])
        )

    def check_model(self, model: ImageModel) -> None:
        """Check that the cache was made with a model's encoders.

        Raises:
            CacheError: An encoder differs; the message says which.
        """
        contents = self.contents
        same = {"VAE": model.latents.digest == contents.vae, "text encoder": model.prompts.digest == contents.encoder}
        others = [name for name, agrees in same.items() if not agrees]
        if others:
            raise CacheError(
                f"{self.folder} was made with another {' and another '.join(others)} than this model's; run: "
                f"quantra train dit cache IMAGES --model MODEL --out {self.folder}"
            )

    def check_pictures(self, pictures: ImageFolder) -> None:
        """Check that the cache was made from these images.

        Raises:
            CacheError: The images differ; the message names the first difference.
        """
        cache_images, images = self.contents.pictures, pictures.pictures
        if cache_images == images:
            return
        pairs = zip(cache_images, images, strict=False)
        first = next((picture.file for picture, other in pairs if picture != other), "the number of images")
        raise CacheError(
            f"{self.folder} was made from other images than those in {pictures.folder} "
            f"({len(cache_images)} and {len(images)}; first difference: {first}); make it again"
        )


def write_cache(
    pictures: ImageFolder,
    model: ImageModel,
    out: Path,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
    *,
    priors: Mapping[str, Tensor] | None = None,
) -> LatentCache:
    """Encode images and prompts into a new folder, written atomically.

    Args:
        pictures: Checked images.
        model: Model whose VAE and text encoder are used.
        out: Folder to create.
        on_progress: Called after each batch with the number of images done and the total.
        priors: Prior tokens of each image, int64 [priors], by file name, if the model reads them.

    Raises:
        PriorError: Priors are missing or invalid, or the model reads none.
        CacheError: `out` exists or cannot be written.
        DataError: An image changed since it was checked, or a prompt is too long.
    """
    check_free(out, CacheError)
    plans = gather_priors(priors, [picture.file for picture in pictures.pictures], model.network)
    tensors = {**_encode(pictures, model, on_progress), "priors": plans}
    try:
        with publish_folder(out) as draft:
            _write(draft, tensors, pictures, model)
    except (OSError, SafetensorError) as error:
        raise CacheError(f"{out} cannot be written ({error}); choose another folder, or free space") from error
    return LatentCache.open(out)


def read_contents(folder: Path) -> CacheContents:
    """Read cache.json.

    Raises:
        CacheError: The file is missing, damaged, or of another version.
    """
    match _read_json(folder):
        case {"version": int(version)} if version != VERSION:
            raise CacheError(f"{folder} has format version {version}, expected {VERSION}; make it again")
        case {
            "version": int(),
            "vae": str(vae),
            "encoder": str(encoder),
            "encoded": str(encoded),
            "pictures": [_, *_] as pictures,
            "refused": list(refused),
        }:
            try:
                images = tuple(PromptedImage(**picture) for picture in pictures)
                rejections = tuple(RejectedFile(**rejected) for rejected in refused)
            except TypeError as error:
                raise make_damaged_error(folder, f"{FILE} has an invalid image entry ({error})") from error
            return CacheContents(vae=vae, encoder=encoder, encoded=encoded, pictures=images, refused=rejections)
        case _:
            raise make_damaged_error(folder, f"{FILE} has missing fields")


def make_damaged_error(folder: Path, problem: str) -> CacheError:
    """Error for a damaged cache."""
    return CacheError(f"cache {folder} is damaged: {problem}; make it again")


def _encode(pictures: ImageFolder, model: ImageModel, on_progress: Callable[[int, int], None]) -> dict[str, Tensor]:
    """Tensors of `LatentCache`, except the priors."""
    device, network = next(model.latents.module.parameters()).device, model.network
    total, prompts = len(pictures.pictures), (UNCONDITIONAL, *pictures.prompts)
    mean, deviation = (torch.empty(total, network.channels, network.side, network.side) for _ in range(2))
    for first in range(0, total, AT_ONCE):
        indices = range(first, min(first + AT_ONCE, total))
        rows = slice(indices.start, indices.stop)
        mean[rows], deviation[rows] = model.latents.encode(pictures.pixels(indices).to(device))
        on_progress(indices.stop, total)
    conditions = [model.prompts.embed(model.prompts.tokens([prompt])) for prompt in prompts]
    order = {prompt: row for row, prompt in enumerate(prompts)}
    return {
        "mean": mean,
        "deviation": deviation,
        "embeddings": torch.cat([condition.embeddings for condition in conditions]).cpu(),
        "mask": torch.cat([condition.mask for condition in conditions]).cpu(),
        "prompts": torch.tensor([order[picture.prompt] for picture in pictures.pictures]),
    }


def _write(folder: Path, tensors: dict[str, Tensor], pictures: ImageFolder, model: ImageModel) -> None:
    save_file(tensors, folder / ENCODED)
    contents = CacheContents(
        vae=model.latents.digest,
        encoder=model.prompts.digest,
        encoded=_hash_file(folder / ENCODED),
        pictures=pictures.pictures,
        refused=pictures.refused,
    )
    value: dict[str, Any] = {"version": VERSION, **asdict(contents)}
    (folder / FILE).write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", "utf-8")


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_json(folder: Path) -> object:
    try:
        return json.loads((folder / FILE).read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CacheError(
            f"{folder} is not a cache: {FILE} is missing; run: "
            f"quantra train dit cache IMAGES --model MODEL --out {folder}"
        ) from error
    except (OSError, ValueError) as error:
        raise make_damaged_error(folder, f"{FILE} cannot be read ({error})") from error
