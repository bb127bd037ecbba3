"""What is written beside the parts of a model: how it came to be."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from trainers.dit.errors import ModelError

TRAINING: Final = "training.json"
"""How a model was trained."""

TUNING: Final = "tuning.json"
"""How a model was tuned."""

WORDS: Final = "words"
"""In both: what the prompts were made of; null where the model had learnt before from others that are not known."""

Notes = Mapping[str, Mapping[str, Any]]
"""What a file says, by its name."""


def read_notes(model: Path) -> Notes:
    """The notes in a model's folder; none where it was made elsewhere.

    Raises:
        ModelError: one of them is damaged.
    """
    return {name: _read(model / name) for name in (TRAINING, TUNING) if (model / name).is_file()}


def trained_words(notes: Notes) -> frozenset[str] | None:
    """The words that a model was trained on; None where its notes do not say."""
    told = next(iter(notes.values()), {}).get(WORDS)
    return None if told is None else frozenset(map(str, told))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        told = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} is damaged ({error}); restore it, or remove it") from error
    if not isinstance(told, dict) or not isinstance(told.get(WORDS, []), list | None):
        raise ModelError(f"{path} is damaged (it is not as a training writes it); restore it, or remove it")
    return told
