"""Vocabulary: characters to numbers, and reported omissions."""

import json
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from transformers import VitsTokenizer

from trainers.vits.errors import VoiceError
from trainers.vits.vocabulary import (
    build_tokenizer,
    count_unknown_characters,
    list_characters,
    load_tokenizer,
    read_vocabulary,
    tokenize,
    write_vocabulary,
)

KURDISH = "ez şev dî û çar"


def save_tokenizer(
    folder: Path, vocabulary: dict[str, int], *, phonemize: bool = False, is_uroman: bool = False
) -> Path:
    """A model folder with a tokenizer saved by transformers."""
    write_vocabulary(folder, vocabulary)
    VitsTokenizer(str(folder / "vocab.json"), phonemize=phonemize, is_uroman=is_uroman).save_pretrained(folder)
    return folder


def test_the_vocabulary_of_texts_is_their_small_letters_in_order_between_blank_and_unknown() -> None:
    assert list_characters(["Ba", " c  a "]) == {"<pad>": 0, " ": 1, "a": 2, "b": 3, "c": 4, "<unk>": 5}


@pytest.mark.parametrize("text", [KURDISH, "  EZ ŞEV, qed!  ", "ez", "İ", "î û ê Î", "ß?"])
def test_tokens_are_those_of_the_tokenizer_itself(text: str) -> None:
    tokenizer = build_tokenizer(list_characters([KURDISH, "İqß"]))
    assert tokenize(tokenizer, text) == tokenizer(text).input_ids


def test_a_blank_stands_before_between_and_after_the_characters() -> None:
    assert tokenize(build_tokenizer(list_characters(["ab"])), "aB") == [0, 1, 0, 2, 0]


def test_every_text_of_a_vocabulary_is_known_whole() -> None:
    tokenizer = build_tokenizer(list_characters([KURDISH, "İstanbul"]))
    assert not count_unknown_characters(tokenizer, KURDISH.upper() + " İSTANBUL")


def test_characters_that_the_tokenizer_would_leave_out_are_counted() -> None:
    tokenizer = build_tokenizer(list_characters([KURDISH]))
    assert count_unknown_characters(tokenizer, "Ez ŞEV qed qed!") == Counter({"q": 2, "!": 1})


def test_a_letter_and_its_accent_are_one_character_however_they_were_typed() -> None:
    tokenizer = build_tokenizer(list_characters([unicodedata.normalize("NFD", KURDISH)]))
    assert tokenizer.get_vocab() == build_tokenizer(list_characters([KURDISH])).get_vocab()
    assert tokenize(tokenizer, unicodedata.normalize("NFD", KURDISH)) == tokenize(tokenizer, KURDISH)


def test_the_name_of_a_token_in_a_text_is_characters_like_others() -> None:
    tokenizer = build_tokenizer(list_characters(["a<pd>"]))
    assert tokenize(tokenizer, "<pad>") == tokenize(tokenizer, "<") + [
        number for sign in "pad>" for number in tokenize(tokenizer, sign)[1:]
    ]


@pytest.mark.parametrize(("text", "told"), [("  ", "is empty"), ("?! 漢", r"missing from the vocabulary \( !\?漢\)")])
def test_a_text_of_which_nothing_is_left_is_refused(text: str, told: str) -> None:
    with pytest.raises(VoiceError, match=told):
        tokenize(build_tokenizer(list_characters([KURDISH])), text)


@pytest.mark.parametrize("numbers", [{}, {"a": 1}, {"a": 0, "b": 0}, {"a": 0, "b": 2}])
def test_a_vocabulary_whose_numbers_are_not_rows_of_a_table_is_refused(numbers: dict[str, int]) -> None:
    with pytest.raises(VoiceError, match=r"0, 1, 2 and so on"):
        build_tokenizer(numbers)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "damaged"),
        (b"\xff", "damaged"),
        (b"[]", "not an object"),
        (b'{"a": "0"}', "no id for 'a'"),
        (b"{}", "0, 1"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_refused_by_name(content: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "vocab.json"
    path.write_bytes(content)
    with pytest.raises(VoiceError, match=told) as refused:
        read_vocabulary(path)
    assert str(path) in refused.value.message


def test_a_vocabulary_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(VoiceError, match=r"vocab\.json cannot be read"):
        load_tokenizer(tmp_path)


def test_a_models_own_tokenizer_is_read_as_it_was_saved(tmp_path: Path) -> None:
    vocabulary = list_characters([KURDISH])
    folder = save_tokenizer(tmp_path, vocabulary)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"add_blank": False}))
    assert tokenize(load_tokenizer(folder), "ez") == [vocabulary["e"], vocabulary["z"]]


def test_without_normalisation_capitals_are_characters_of_their_own(tmp_path: Path) -> None:
    folder = save_tokenizer(tmp_path, {"<pad>": 0, "A": 1, "a": 2, "<unk>": 3})
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"normalize": False}))
    tokenizer = load_tokenizer(folder)
    assert tokenize(tokenizer, "AaB") == [0, 1, 0, 2, 0]
    assert count_unknown_characters(tokenizer, "AaB") == Counter("B")


@pytest.mark.parametrize("package", ["phonemizer", "uroman"])
def test_a_tokenizer_that_needs_a_missing_package_is_refused_by_its_name(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_tokenizer(tmp_path, {"a": 0}, phonemize=package == "phonemizer", is_uroman=package == "uroman")
    monkeypatch.setattr("trainers.vits.vocabulary.find_spec", lambda _name: None)  # pyright: ignore[reportUnknownLambdaType]
    with pytest.raises(VoiceError, match=f"pip install {package}"):
        load_tokenizer(folder)
