"""Texts as a model reads them: their characters, the numbers of those, and what no number exists for.

transformers' `VitsTokenizer` leaves out, without a word, every character that its vocabulary does not hold. Here
nothing is left out unseen: `unknown_characters` counts what would be.
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
"""The blank between any two characters; its number is 0."""

UNKNOWN: Final = "<unk>"

VOCABULARY: Final = "vocab.json"
"""The file's name, in a prepared corpus as in a model's folder."""

SHOWN: Final = 80
"""Characters of a text that a message shows."""


def shortened(text: str, most: int = SHOWN) -> str:
    """As much of a text as a message can hold."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def small_letters(text: str) -> str:
    """A text in its normal form as the tokenizer makes it small: letter by letter."""
    return "".join(letter.lower() for letter in normal_text(text))


def characters(texts: Iterable[str]) -> dict[str, int]:
    """A vocabulary of all that texts hold, lowercase: the blank is 0, the characters follow in code point order."""
    found = {sign for text in texts for sign in small_letters(text)}
    return {sign: number for number, sign in enumerate((PAD, *sorted(found), UNKNOWN))}


def tokenizer_of(vocabulary: Mapping[str, int]) -> "VitsTokenizer":
    """The tokenizer of a vocabulary: lowercase characters with a blank between any two, no phonemes.

    Raises:
        VoiceError: The vocabulary's numbers are not 0, 1, 2 and so on, or no temporary file can be written.
    """
    from transformers import VitsTokenizer

    _check_numbers(vocabulary, "this one")
    with TemporaryDirectory() as folder:
        _write_for_a_moment(Path(folder), vocabulary)
        return VitsTokenizer(
            str(Path(folder) / VOCABULARY), phonemize=False, normalize=True, add_blank=True, is_uroman=False
        )


def tokenizer_in(folder: Path) -> "VitsTokenizer":
    """The tokenizer of a model's folder, as it was saved; nothing is fetched.

    Raises:
        VoiceError: There is no readable vocabulary in the folder, or the tokenizer needs a package that is missing.
    """
    from transformers import VitsTokenizer

    read_vocabulary(folder / VOCABULARY)
    tokenizer: VitsTokenizer = VitsTokenizer.from_pretrained(str(folder), local_files_only=True)
    for wanted, package in ((tokenizer.phonemize, "phonemizer"), (tokenizer.is_uroman, "uroman")):
        if wanted and find_spec(package) is None:
            raise VoiceError(
                f"the tokenizer in {folder} rewrites texts with {package}, which this Python does not have: "
                f"pip install {package}, or take a model that reads plain characters"
            )
    return tokenizer


def read_vocabulary(path: Path) -> dict[str, int]:
    """A vocabulary from its file.

    Raises:
        VoiceError: It is missing, cannot be read, or does not number its characters 0, 1, 2 and so on.
    """
    try:
        found: object = json.loads(path.read_bytes())
    except OSError as error:
        raise VoiceError(f"vocabulary {path} cannot be read ({error.strerror}); name a model's folder") from error
    except ValueError as error:
        raise VoiceError(f"vocabulary {path} is damaged ({error}); copy the model's folder again") from error
    if not isinstance(found, dict):
        raise VoiceError(f"vocabulary {path} is no object of characters and numbers; copy the model's folder again")
    vocabulary: dict[str, int] = {}
    for sign, number in found.items():
        if not isinstance(number, int) or isinstance(number, bool):
            raise VoiceError(f"vocabulary {path} gives {sign!r} no number; copy the model's folder again")
        vocabulary[str(sign)] = number
    _check_numbers(vocabulary, str(path))
    return vocabulary


def write_vocabulary(folder: Path, vocabulary: Mapping[str, int]) -> None:
    """Write vocab.json into a folder; the same vocabulary gives the same bytes.

    Raises:
        OSError: The file cannot be written.
    """
    ordered = dict(sorted(vocabulary.items(), key=lambda one: one[1]))
    (folder / VOCABULARY).write_bytes(json.dumps(ordered, ensure_ascii=False, indent=1).encode() + b"\n")


def unknown_characters(tokenizer: "VitsTokenizer", text: str) -> Counter[str]:
    """The characters of a text that the tokenizer has no number for, and how often each occurs.

    Counted after its own rewriting, so that a capital is known where its small letter is; a blank at the ends is no
    character of the text.
    """
    return Counter(sign for sign in _rewritten(tokenizer, text) if sign not in tokenizer.encoder)


def tokens(tokenizer: "VitsTokenizer", text: str) -> list[int]:
    """The numbers of a text's characters, without those that `unknown_characters` counts.

    The same as the tokenizer's own `input_ids`, save that <pad> or <unk> in a text are characters like others.

    Returns:
        2n + 1 numbers for n characters where the tokenizer puts blanks between them, else n.

    Raises:
        VoiceError: Nothing is left of the text.
    """
    rewritten = _rewritten(tokenizer, text)
    known = "".join(sign for sign in rewritten if sign in tokenizer.encoder).strip()
    if not known:
        raise VoiceError(_nothing_left(text, rewritten))
    numbers: list[int] = [tokenizer.encoder[sign] for sign in known]
    if not tokenizer.add_blank:
        return numbers
    return [0, *(number for pair in ((number, 0) for number in numbers) for number in pair)]


def _write_for_a_moment(folder: Path, vocabulary: Mapping[str, int]) -> None:
    """Write a vocabulary where a tokenizer can read it, which reads files alone."""
    try:
        write_vocabulary(folder, vocabulary)
    except OSError as error:
        raise VoiceError(
            f"{folder} for temporary files cannot be written ({error.strerror}); make room there, or set TMPDIR"
        ) from error


def _check_numbers(vocabulary: Mapping[str, int], name: str) -> None:
    """Every number is a row of the model's table of characters."""
    if not vocabulary or sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise VoiceError(
            f"a vocabulary numbers its characters 0, 1, 2 and so on, each once; {name} of {len(vocabulary)} does not: "
            "use the one that the corpus or the model was saved with"
        )


def _nothing_left(text: str, rewritten: str) -> str:
    """What is wrong with a text of which nothing is left."""
    if not normal_text(text):
        return "the text is empty; write what is said"
    signs = shortened("".join(sorted(set(rewritten))))
    return (
        f"the text {shortened(text)!r} has only characters that the vocabulary does not hold ({signs}); spell it with "
        "others"
    )


def _rewritten(tokenizer: "VitsTokenizer", text: str) -> str:
    """A text after all that the tokenizer does to it before it leaves characters out."""
    text = normal_text(text)
    if tokenizer.normalize:
        text = tokenizer.normalize_text(text)
    return tokenizer.prepare_for_tokenization(text, normalize=False)[0].strip()
