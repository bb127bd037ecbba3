"""Encoded images: what VAE and text encoder say of a folder, computed once.

CACHE/cache.json             which images, prompts and encoders it was made of, by their digests
CACHE/encoded.safetensors    the posterior's mean and deviation of each image, and the embeddings of each prompt

A step draws from the posterior, so that an image is not the same latents every time, as one kept draw would be.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self, final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from trainers.dit.batches import EncodedImages
from trainers.dit.encoders import Posterior
from trainers.dit.errors import CacheError
from trainers.dit.images import ImageFolder, PromptedImage
from trainers.dit.models import ImageModel
from trainers.dit.networks import PromptCondition
from trainers.dit.prompts import gathered_priors
from trainers.media.metadata import RejectedFile
from trainers.media.run_directory import appearing, check_free, own_draft

FILE: Final = "cache.json"
ENCODED: Final = "encoded.safetensors"
VERSION: Final = 1
AT_ONCE: Final = 64
"""Images that are encoded together."""

UNCONDITIONAL: Final = ""
"""The prompt that says nothing: what is left of a prompt that guidance drops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheContents:
    """What cache.json says.

    Attributes:
        vae: its digest.
        encoder: that of text encoder and tokenizer.
        encoded: that of the file of tensors.
        pictures: in the order of their tensors.
        refused: what was left out, and why.
    """

    vae: str
    encoder: str
    encoded: str
    pictures: tuple[PromptedImage, ...]
    refused: tuple[RejectedFile, ...]


@final
class LatentCache:
    """A folder of encoded images, opened; its file is mapped into memory, and a batch reads its rows from it.

    Args:
        folder: where it is.
        contents: what its file says.
        tensors: mean and deviation, float32 [images, channels, side, side]; embeddings, float32 [prompts, tokens,
            width], and mask, int64 [prompts, tokens], of which row 0 is of no prompt; prompts, int64 [images], and
            priors, int64 [images, priors].

    Attributes:
        folder: as given.
        contents: as given.
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
            CacheError: There is none, it is damaged, or another version wrote it.
        """
        contents, path = read_contents(folder), folder / ENCODED
        try:
            if _file_digest(path) != contents.encoded:
                raise damaged(folder, f"{ENCODED} is not the one that was written")
            tensors = load_file(path)  # maps the file: nothing of it is read before a batch asks
        except (OSError, SafetensorError) as error:
            raise damaged(folder, f"{ENCODED} cannot be read ({error})") from error
        if len(tensors["mean"]) != len(contents.pictures):
            raise damaged(folder, f"{FILE} names {len(contents.pictures)} images, {ENCODED} has {len(tensors['mean'])}")
        return cls(folder, contents, tensors)

    def __len__(self) -> int:
        return len(self.contents.pictures)

    @property
    def prompts(self) -> tuple[str, ...]:
        """Each prompt once, in the order in which they come."""
        return tuple(dict.fromkeys(picture.prompt for picture in self.contents.pictures))

    @property
    def digest(self) -> str:
        """Of what it holds."""
        return self.contents.encoded

    def gather(self, index: Tensor) -> EncodedImages:
        """The batch of some places, int64 [N]."""
        posterior = Posterior(*(part[index] for part in self._posterior))
        return EncodedImages(posterior, self._condition.rows(self._prompts[index]).with_priors(self._priors[index]))

    def check_model(self, model: ImageModel) -> None:
        """Check that a model's encoders made it.

        Raises:
            CacheError: They did not; the message says which of them.
        """
        kept = self.contents
        same = {"VAE": model.latents.digest == kept.vae, "text encoder": model.prompts.digest == kept.encoder}
        others = [name for name, agrees in same.items() if not agrees]
        if others:
            raise CacheError(
                f"{self.folder} was made by another {' and another '.join(others)} than this model's; make it again: "
                f"quantra train dit cache IMAGES --model MODEL --out {self.folder}"
            )

    def check_pictures(self, pictures: ImageFolder) -> None:
        """Check that it was made of these images.

        Raises:
            CacheError: It was made of others; the message names the first that differs.
        """
        kept, given = self.contents.pictures, pictures.pictures
        if kept == given:
            return
        pairs = zip(kept, given, strict=False)
        first = next((own.file for own, other in pairs if own != other), "the number of images")
        raise CacheError(
            f"{self.folder} was made of other images than {pictures.folder} holds ({len(kept)} and {len(given)}; the "
            f"first difference: {first}); make it again"
        )


def write_cache(
    pictures: ImageFolder,
    model: ImageModel,
    out: Path,
    tell: Callable[[int, int], None] = lambda _done, _total: None,
    *,
    priors: Mapping[str, Tensor] | None = None,
) -> LatentCache:
    """Encode images and prompts; the folder appears whole or not at all.

    Args:
        pictures: checked.
        model: of which VAE and text encoder are used.
        out: the folder to make; must not exist.
        tell: called after each batch with how many images are done, and of how many.
        priors: tokens of a plan for each image, int64 [priors], by its file, for a model that reads them.

    Raises:
        PriorError: the model reads priors and those of an image are missing or none; or it reads none.
        CacheError: `out` exists or cannot be written.
        DataError: An image has changed since it was checked, or a prompt is too long.
    """
    check_free(out, CacheError)
    plans = gathered_priors(priors, [picture.file for picture in pictures.pictures], model.network)
    tensors = {**_encoded(pictures, model, tell), "priors": plans}
    try:
        with appearing(out, own_draft(out)) as draft:
            _write(draft, tensors, pictures, model)
    except (OSError, SafetensorError) as error:
        raise CacheError(f"{out} cannot be written ({error}); choose another place, or make room there") from error
    return LatentCache.open(out)


def read_contents(folder: Path) -> CacheContents:
    """Read cache.json.

    Raises:
        CacheError: There is none, it is damaged, or another version wrote it.
    """
    match _json(folder):
        case {"version": int(version)} if version != VERSION:
            raise CacheError(f"{folder} was made in version {version}, here {VERSION} is read; make it again")
        case {
            "version": int(),
            "vae": str(vae),
            "encoder": str(encoder),
            "encoded": str(encoded),
            "pictures": [_, *_] as pictures,
            "refused": list(refused),
        }:
            try:
                kept = tuple(PromptedImage(**one) for one in pictures)
                left = tuple(RejectedFile(**one) for one in refused)
            except TypeError as error:
                raise damaged(folder, f"{FILE} names an image wrongly ({error})") from error
            return CacheContents(vae=vae, encoder=encoder, encoded=encoded, pictures=kept, refused=left)
        case _:
            raise damaged(folder, f"{FILE} lacks something")


def damaged(folder: Path, problem: str) -> CacheError:
    """What is said of a cache that is not as it was written."""
    return CacheError(f"cache {folder} is damaged: {problem}; make it again")


def _encoded(pictures: ImageFolder, model: ImageModel, tell: Callable[[int, int], None]) -> dict[str, Tensor]:
    """All tensors, as `LatentCache` takes them."""
    device, network = next(model.latents.module.parameters()).device, model.network
    total, prompts = len(pictures.pictures), (UNCONDITIONAL, *pictures.prompts)
    mean, deviation = (torch.empty(total, network.channels, network.side, network.side) for _ in range(2))
    for first in range(0, total, AT_ONCE):
        places = range(first, min(first + AT_ONCE, total))
        rows = slice(places.start, places.stop)
        mean[rows], deviation[rows] = model.latents.encode(pictures.pixels(places).to(device))
        tell(places.stop, total)
    conditions = [model.prompts.embed(model.prompts.tokens([prompt])) for prompt in prompts]
    order = {prompt: row for row, prompt in enumerate(prompts)}
    return {
        "mean": mean,
        "deviation": deviation,
        "embeddings": torch.cat([one.embeddings for one in conditions]).cpu(),
        "mask": torch.cat([one.mask for one in conditions]).cpu(),
        "prompts": torch.tensor([order[picture.prompt] for picture in pictures.pictures]),
    }


def _write(folder: Path, tensors: dict[str, Tensor], pictures: ImageFolder, model: ImageModel) -> None:
    save_file(tensors, folder / ENCODED)
    contents = CacheContents(
        vae=model.latents.digest,
        encoder=model.prompts.digest,
        encoded=_file_digest(folder / ENCODED),
        pictures=pictures.pictures,
        refused=pictures.refused,
    )
    value: dict[str, Any] = {"version": VERSION, **asdict(contents)}
    (folder / FILE).write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", "utf-8")


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _json(folder: Path) -> object:
    try:
        return json.loads((folder / FILE).read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CacheError(
            f"{folder} is no cache: it has no {FILE}; make one by: "
            f"quantra train dit cache IMAGES --model MODEL --out {folder}"
        ) from error
    except (OSError, ValueError) as error:
        raise damaged(folder, f"{FILE} cannot be read ({error})") from error
