"""feedback.jsonl: valid lines and refusals."""

import unicodedata
from pathlib import Path

import pytest
from correctable import LATER, TEXTS, correction, manifest

from trainers.vits.errors import FeedbackError
from trainers.vits.manifest import read_manifest


def test_corrections_and_ratings_are_read_in_their_order(tmp_path: Path) -> None:
    lines = [
        {**correction(LATER[0]), "source": "Dilan"},
        "",
        {"clip": "a", "rating": 1},
        correction(LATER[1], rating=2),
    ]
    read = read_manifest(manifest(tmp_path, lines))
    assert [(one.line, one.text, one.rating) for one in read.corrections] == [
        (1, TEXTS[LATER[0]], 5),
        (4, TEXTS[LATER[1]], 2),
    ]
    assert [(one.line, one.clip, one.rating) for one in read.ratings] == [(3, "a", 1)]


def test_a_digest_follows_sound_text_and_rating_and_a_content_no_rating(tmp_path: Path) -> None:
    copy = tmp_path / "copy.flac"
    copy.write_bytes(Path(correction(LATER[0])["audio"]).read_bytes())
    first = correction(LATER[0])
    lines = [
        first,
        {**first, "audio": "copy.flac"},
        {**first, "rating": 4},
        {**first, "text": "du"},
        correction(LATER[1]),
    ]
    read = read_manifest(manifest(tmp_path, lines)).corrections
    assert [one.digest == read[0].digest for one in read] == [True, True, False, False, False]
    assert [one.content == read[0].content for one in read] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([{**correction(LATER[0]), "note": "x"}], "line 1: note is not known"),
        ([{**correction(LATER[0]), "clip": "a"}], "line 1: an item has either audio"),
        ([{"rating": 3}], "line 1: an item has either audio"),
        ([{"clip": "a"}], "line 1: rating is None"),
        ([{"clip": "a", "rating": True}], "line 1: rating is True"),
        (["[1]"], "line 1: expected an object, got list"),
        ([{"clip": "a", "rating": 1}, {"clip": "a", "rating": 2}], "line 2: a is rated 2, and 1 on line 1"),
        (["{"] * 22, "line 20: .*and 2 more"),
    ],
)
def test_every_wrong_line_is_named_with_its_reason(lines: list[object], expected: str, tmp_path: Path) -> None:
    with pytest.raises(FeedbackError, match=expected):
        read_manifest(manifest(tmp_path, lines))  # pyright: ignore[reportArgumentType]


def test_a_manifest_that_is_missing_or_of_another_encoding_is_named(tmp_path: Path) -> None:
    with pytest.raises(FeedbackError, match=r"manifest .*feedback\.jsonl does not exist"):
        read_manifest(tmp_path / "feedback.jsonl")
    path = tmp_path / "feedback.jsonl"
    path.write_bytes(b'{"clip": "\xff", "rating": 1}\n')
    with pytest.raises(FeedbackError, match=r"is not UTF-8 .* at byte 10"):
        read_manifest(path)


def test_a_recording_that_disappears_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(b"x")
    (one,) = read_manifest(manifest(tmp_path, [{"audio": "a.wav", "text": "a"}])).corrections
    path.unlink()
    assert len(one.digest) == 64


def test_a_text_is_the_same_however_its_letters_and_blanks_are_written(tmp_path: Path) -> None:
    one = correction(LATER[0])
    lines = [{**one, "text": text} for text in ("ez diçim malê", unicodedata.normalize("NFD", " ez  diçim malê"))]
    first, second = read_manifest(manifest(tmp_path, lines)).corrections
    assert first.text != second.text
    assert (first.content, first.digest) == (second.content, second.digest)


def test_other_ends_of_lines_may_stand_in_a_text(tmp_path: Path) -> None:
    text = "ez\u2028diçim\x85malê"
    lines = [{**correction(LATER[0]), "text": text}, {"clip": "a", "rating": 6}]
    with pytest.raises(FeedbackError, match="line 2: rating is 6"):
        read_manifest(manifest(tmp_path, lines))
    assert read_manifest(manifest(tmp_path, lines[:1])).corrections[0].text == text


def test_a_manifest_of_another_system_is_read_as_it_is(tmp_path: Path) -> None:
    path = manifest(tmp_path, [correction(LATER[0]), {"clip": "a", "rating": 1}])
    plain = read_manifest(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_manifest(path) == plain


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[" * 100_000, "line 1: .*too deep"),
        (r'{"clip": "\ud800", "rating": 1}', "line 1: .*surrogates"),
        ('{"audio": "%s", "text": "a"}' % ("a" * 300), "line 1: .*File name too long"),
        ('{"audio": "a.wav", "text": "%s"}' % (" " * 100_000), r"line 1: .*\(100002 characters\)"),
    ],
)
def test_an_oversized_line_is_reported_shortened(line: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "a.wav").touch()
    with pytest.raises(FeedbackError, match=expected) as told:
        read_manifest(manifest(tmp_path, [line]))
    assert len(str(told.value)) < 500
