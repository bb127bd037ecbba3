"""Vocabularies, token ids, and characters that a vocabulary lacks.

transformers' `VitsTokenizer` silently drops characters that its vocabulary lacks; `count_unknown_characters` counts
them.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from trainers.media.metadata import normal_text
from trainers.vits.errors import VoiceError

if TYPE_CHECKING:
    from transformers import VitsTokenizer

PAD: Final = "<pad>"
"""Blank between characters; its id is 0."""

UNKNOWN: Final = "<unk>"

VOCABULARY: Final = "vocab.json"
"""File name in prepared corpora and model folders."""

MAX_SHOWN_CHARACTERS: Final = 80
"""Maximum characters of a text in a message."""


def shorten(text: str, max_characters: int = MAX_SHOWN_CHARACTERS) -> str:
    """Shorten a text for a message."""
    return text if len(text) <= max_characters else f"{text[:max_characters]}… ({len(text)} characters)"


def lower_letters(text: str) -> str:
    """Normalise a text and lower-case it letter by letter, like the tokenizer."""
    return "".join(letter.lower() for letter in normal_text(text))


def list_characters(texts: Iterable[str]) -> dict[str, int]:
    """Build a vocabulary of lower-case characters: the blank is 0, the characters follow in code point order."""
    characters = {char for text in texts for char in lower_letters(text)}
    return {char: number for number, char in enumerate((PAD, *sorted(characters), UNKNOWN))}


def build_tokenizer(vocabulary: Mapping[str, int]) -> "VitsTokenizer":
    """Make a tokenizer of lower-case characters with blanks in between, without phonemes.

    Raises:
        VoiceError: The ids are not 0, 1, 2 and so on, or no temporary file can be written.
    """
    from transformers import VitsTokenizer

    _check_numbers(vocabulary, "this one")
    with TemporaryDirectory() as folder:
        try:
            write_vocabulary(Path(folder), vocabulary)  # the tokenizer reads only files
        except OSError as error:
            raise VoiceError(
                f"temporary folder {folder} cannot be written ({error.strerror}); free space, or set TMPDIR"
            ) from error
        return VitsTokenizer(
            str(Path(folder) / VOCABULARY), phonemize=False, normalize=True, add_blank=True, is_uroman=False
        )


def load_tokenizer(folder: Path) -> "VitsTokenizer":
    """Load the tokenizer of a model folder, without downloads.

    Raises:
        VoiceError: The folder has no readable vocabulary, or the tokenizer needs a missing package.
    """
    from transformers import VitsTokenizer

    read_vocabulary(folder / VOCABULARY)
    tokenizer: VitsTokenizer = VitsTokenizer.from_pretrained(str(folder), local_files_only=True)
    for is_needed, package in ((tokenizer.phonemize, "phonemizer"), (tokenizer.is_uroman, "uroman")):
        if is_needed and find_spec(package) is None:
            raise VoiceError(
                f"the tokenizer in {folder} needs {package}, not installed in this Python: "
                f"pip install {package}, or use a model that reads plain characters"
            )
    return tokenizer


def read_vocabulary(path: Path) -> dict[str, int]:
    """Read a vocabulary file.

    Raises:
        VoiceError: The file is missing or unreadable, or the ids are not 0, 1, 2 and so on.
    """
    try:
        content: object = json.loads(path.read_bytes())
    except OSError as error:
        raise VoiceError(f"vocabulary {path} cannot be read ({error.strerror}); give a model folder") from error
    except ValueError as error:
        raise VoiceError(f"vocabulary {path} is damaged ({error}); copy the model's folder again") from error
    if not isinstance(content, dict):
        raise VoiceError(f"vocabulary {path} is not an object of characters and ids; copy the model's folder again")
    vocabulary: dict[str, int] = {}
    for char, number in content.items():
        if not isinstance(number, int) or isinstance(number, bool):
            raise VoiceError(f"vocabulary {path} has no id for {char!r}; copy the model's folder again")
        vocabulary[str(char)] = number
    _check_numbers(vocabulary, str(path))
    return vocabulary


def write_vocabulary(folder: Path, vocabulary: Mapping[str, int]) -> None:
    """Write vocab.json into a folder; deterministic.

    Raises:
        OSError: The file cannot be written.
    """
    ordered = dict(sorted(vocabulary.items(), key=lambda item: item[1]))
    (folder / VOCABULARY).write_bytes(json.dumps(ordered, ensure_ascii=False, indent=1).encode() + b"\n")


def count_unknown_characters(tokenizer: "VitsTokenizer", text: str) -> Counter[str]:
    """Count the characters of a text that the tokenizer does not know, after its normalisation."""
    return Counter(char for char in _rewrite(tokenizer, text) if char not in tokenizer.encoder)


def tokenize(tokenizer: "VitsTokenizer", text: str) -> list[int]:
    """Token ids of a text, without unknown characters.

    Equal to the tokenizer's `input_ids`, except that <pad> or <unk> in a text have no special meaning.

    Returns:
        2n + 1 ids for n characters if the tokenizer adds blanks, else n.

    Raises:
        VoiceError: No character of the text is known.
    """
    rewritten = _rewrite(tokenizer, text)
    spoken = "".join(char for char in rewritten if char in tokenizer.encoder).strip()
    if not spoken and not normal_text(text):
        raise VoiceError("the text is empty; write the words to speak")
    if not spoken:
        unknown = shorten("".join(sorted(set(rewritten))))
        raise VoiceError(
            f"all characters of the text {shorten(text)!r} are missing from the vocabulary ({unknown}); respell it"
        )
    numbers: list[int] = [tokenizer.encoder[char] for char in spoken]
    if not tokenizer.add_blank:
        return numbers
    return [0, *(number for pair in ((number, 0) for number in numbers) for number in pair)]


def _check_numbers(vocabulary: Mapping[str, int], name: str) -> None:
    if not vocabulary or sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise VoiceError(
            f"ids of a vocabulary must be 0, 1, 2 and so on, each once; those of {name} ({len(vocabulary)} entries) "
            "are not: use the one saved with the corpus or the model"
        )


def _rewrite(tokenizer: "VitsTokenizer", text: str) -> str:
    """Normalise a text like the tokenizer does before it drops characters."""
    text = normal_text(text)
    if tokenizer.normalize:
        text = tokenizer.normalize_text(text)
    return tokenizer.prepare_for_tokenization(text, normalize=False)[0].strip()
