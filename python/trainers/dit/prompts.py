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


SHOWN: Final = 5
"""How many words a notice names."""


def words_after(
    before: frozenset[str] | None, prompts: Iterable[str], coder: "PromptEncoder", *, fresh: bool
) -> list[str] | None:
    """The words that a model knows after it was trained on prompts, sorted; None where that is not known.

    Args:
        before: those that it knew.
        prompts: that it was trained on.
        coder: who reads them.
        fresh: whether it had learnt nothing before.
    """
    if before is None and not fresh:
        return None
    return sorted((before or frozenset()).union(*map(coder.words, prompts)))


def unknown_words(prompt: str, coder: "PromptEncoder", known: frozenset[str] | None) -> list[str]:
    """The words of a prompt that the tokenizer has no token for, or that are not among those known, each once.

    Args:
        prompt: one.
        coder: who reads it.
        known: those that a model was trained on; None where nobody knows.
    """
    untrained = () if known is None else (word for word in coder.words(prompt) if word not in known)
    return [*dict.fromkeys((*coder.unknown(prompt), *untrained))]


def doubts(prompt: str, coder: "PromptEncoder", known: frozenset[str] | None) -> str | None:
    """What is said of a prompt that has words that the model does not know; None where it has none."""
    found = unknown_words(prompt, coder, known)
    if not found:
        return None
    return f"! the model does not know {_listed(found)}, and may draw something else; say it otherwise"


def doubts_of_all(
    prompts: Collection[str], coder: "PromptEncoder", known: frozenset[str] | None, source: Path
) -> str | None:
    """The same of all prompts of a folder, in one line with their number."""
    found = [unknown for prompt in prompts if (unknown := unknown_words(prompt, coder, known))]
    if not found:
        return None
    words = [*dict.fromkeys(word for unknown in found for word in unknown)]
    return f"! the model does not know {_listed(words)}, which {len(found)} of {len(prompts)} prompts of {source} have"


def _listed(words: Collection[str]) -> str:
    """In quotation marks; of many the first ones."""
    shown = ", ".join(map(repr, [*words][:SHOWN]))
    return f"{shown} and {len(words) - SHOWN} more words" if len(words) > SHOWN else shown


def read_priors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, by their names.

    Raises:
        PriorError: it cannot be read.
    """
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise PriorError(f"{path} cannot be read as a safetensors file ({error}); name another") from error


def gathered_priors(priors: Mapping[str, Tensor] | None, names: Sequence[str], network: ImageNetwork) -> Tensor:
    """The plans of images by their names, each int64 [priors], in order: int64 [images, priors].

    Raises:
        PriorError: some are missing or are no plan; or the network reads none.
    """
    if not network.priors:
        if priors is not None:
            raise PriorError("this model reads no prior tokens; leave them out")
        return torch.zeros(len(names), 0, dtype=torch.long)
    given = priors or {}
    missing = [name for name in names if name not in given]
    if missing:
        raise PriorError(
            f"{len(missing)} of {len(names)} images have no prior tokens, {', '.join(missing[:SHOWN])} the first; this "
            f"model reads {network.priors} for each, from the language model that it was made with"
        )
    for name in names:
        check_priors(given[name][None], network, name)
    return torch.stack([given[name] for name in names])


def check_priors(priors: Tensor, network: ImageNetwork, name: str = "a prompt") -> None:
    """Check that tokens, int64 [N, priors], are plans that a network can read.

    Raises:
        PriorError: they are of another number or type, outside the codebook, or all zero.
    """
    if priors.dtype != torch.long or priors.ndim != 2 or priors.shape[1] != network.priors:  # noqa: PLR2004  a table
        raise PriorError(
            f"the prior tokens of {name} are {priors.dtype} {list(priors.shape[1:])}; this model reads int64 "
            f"[{network.priors}], one for each patch of the image"
        )
    if int(priors.min()) < 0 or int(priors.max()) >= network.codebook:
        raise PriorError(
            f"the prior tokens of {name} go from {int(priors.min())} to {int(priors.max())}; they must be from 0 to "
            f"{network.codebook - 1}"
        )
    if bool((priors == 0).all(dim=1).any()):
        raise PriorError(
            f"the prior tokens of {name} are all zero, which is no plan of an image; give those of the language model"
        )


def priors_of(priors: Tensor | Sequence[Tensor] | None, count: int, network: ImageNetwork) -> Tensor:
    """The plans of so many images in their order, int64 [count, priors], checked.

    Raises:
        PriorError: they are missing or are no plans; or the network reads none.
    """
    by_name = None if priors is None else {f"image {number}": plan for number, plan in enumerate(priors)}
    return gathered_priors(by_name, [f"image {number}" for number in range(count)], network)
