"""Which words of prompts a model knows: its tokenizer has tokens for them, and it has learnt from prompts with them.

What it does not know is spelled, or stands as something unknown, and an image is drawn all the same; nothing but a
notice tells that it may show something else.
"""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

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
