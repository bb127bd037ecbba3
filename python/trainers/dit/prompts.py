"""Prompt vocabulary and prior tokens."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from trainers.dit.errors import PriorError
from trainers.dit.networks import ImageNetwork

if TYPE_CHECKING:
    from trainers.dit.encoders import PromptEncoder


MAX_LISTED: Final = 5
"""Maximum number of words or images in a message."""


def add_words(
    before: frozenset[str] | None, prompts: Iterable[str], encoder: "PromptEncoder", *, is_untrained: bool
) -> list[str] | None:
    """Words that a model knows after a training run, sorted; None if those before it are unknown.

    Args:
        before: Words before the training.
        prompts: Prompts of the training.
        encoder: Encoder of the prompts.
        is_untrained: Whether the model was untrained before.
    """
    if before is None and not is_untrained:
        return None
    return sorted((before or frozenset()).union(*map(encoder.words, prompts)))


def find_unknown_words(prompt: str, encoder: "PromptEncoder", trained_words: frozenset[str] | None) -> list[str]:
    """Distinct words of a prompt that have no token or are not among the trained_words words.

    Args:
        prompt: Prompt to check.
        encoder: Encoder of the prompt.
        trained_words: Words that the model was trained on; None if unknown.
    """
    untrained = () if trained_words is None else (word for word in encoder.words(prompt) if word not in trained_words)
    return [*dict.fromkeys((*encoder.unknown(prompt), *untrained))]


def describe_unknown_words(prompt: str, encoder: "PromptEncoder", trained_words: frozenset[str] | None) -> str | None:
    """Warning of words in a prompt that the model does not know, if any."""
    unknown = find_unknown_words(prompt, encoder, trained_words)
    if not unknown:
        return None
    return f"! the model does not know {_join_words(unknown)}, and may draw something else; rephrase the prompt"


def describe_unknown_words_of_folder(
    prompts: Collection[str], encoder: "PromptEncoder", trained_words: frozenset[str] | None, source: Path
) -> str | None:
    """Warning of words in the prompts of a folder that the model does not know, if any."""
    unknown_words = [unknown for prompt in prompts if (unknown := find_unknown_words(prompt, encoder, trained_words))]
    if not unknown_words:
        return None
    words = _join_words([*dict.fromkeys(word for unknown in unknown_words for word in unknown)])
    return f"! the model does not know {words}, used by {len(unknown_words)} of {len(prompts)} prompts of {source}"


def _join_words(words: Collection[str]) -> str:
    """Quoted words, at most `MAX_LISTED`."""
    listing = ", ".join(map(repr, [*words][:MAX_LISTED]))
    return f"{listing} and {len(words) - MAX_LISTED} more words" if len(words) > MAX_LISTED else listing


def read_priors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file, by name.

    Raises:
        PriorError: The file cannot be read.
    """
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise PriorError(f"{path} cannot be read as a safetensors file ({error}); choose another") from error


def gather_priors(priors: Mapping[str, Tensor] | None, names: Sequence[str], network: ImageNetwork) -> Tensor:
    """Stack the prior tokens of named images, each int64 [priors], and check them: int64 [images, priors].

    Raises:
        PriorError: Priors are missing or invalid, or the network reads none.
    """
    if not network.prior_count:
        if priors is not None:
            raise PriorError("this model reads no prior tokens; leave them out")
        return torch.zeros(len(names), 0, dtype=torch.long)
    available = priors or {}
    missing = [name for name in names if name not in available]
    if missing:
        raise PriorError(
            f"{len(missing)} of {len(names)} images have no prior tokens, first: {', '.join(missing[:MAX_LISTED])}; "
            f"this model needs {network.prior_count} per image, from its language model"
        )
    for name in names:
        check_priors(available[name][None], network, name)
    return torch.stack([available[name] for name in names])


def check_priors(priors: Tensor, network: ImageNetwork, name: str = "a prompt") -> None:
    """Check the prior tokens of images, int64 [N, priors].

    Raises:
        PriorError: Their number or type is wrong, or they are outside the codebook or all zero.
    """
    if priors.dtype != torch.long or priors.ndim != 2 or priors.shape[1] != network.prior_count:  # noqa: PLR2004  a matrix
        raise PriorError(
            f"the prior tokens of {name} are {priors.dtype} {list(priors.shape[1:])}; this model reads int64 "
            f"[{network.prior_count}], one per patch of the image"
        )
    if int(priors.min()) < 0 or int(priors.max()) >= network.codebook_size:
        raise PriorError(
            f"the prior tokens of {name} range from {int(priors.min())} to {int(priors.max())}; they must be from 0 to "
            f"{network.codebook_size - 1}"
        )
    if bool((priors == 0).all(dim=1).any()):
        raise PriorError(f"the prior tokens of {name} are all zero; give those of the language model")


def stack_priors(priors: Tensor | Sequence[Tensor] | None, count: int, network: ImageNetwork) -> Tensor:
    """Stack the prior tokens of images in order, and check them: int64 [count, priors].

    Raises:
        PriorError: Priors are missing or invalid, or the network reads none.
    """
    by_name = None if priors is None else {f"image {number}": plan for number, plan in enumerate(priors)}
    return gather_priors(by_name, [f"image {number}" for number in range(count)], network)
