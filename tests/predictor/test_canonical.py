"""Canonical JSON: one form to write, strict reading."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import pytest

from predictor.canonical import Json, Record, from_bytes, read_as, to_bytes
from predictor.errors import ArtifactError

VALUE: Json = {"b": [1, -0.5, 1e300, True, None], "a": {"ü": 'quote " and \\ slash'}}


def test_a_value_reads_back_equal() -> None:
    assert from_bytes(to_bytes(VALUE), "x.json") == VALUE


def test_writing_is_canonical() -> None:
    assert to_bytes({"b": 1, "a": ["ü", 0.1]}) == '{\n  "a": [\n    "ü",\n    0.1\n  ],\n  "b": 1\n}\n'.encode()


def test_the_order_of_keys_does_not_matter() -> None:
    assert to_bytes({"a": 1, "b": 2}) == to_bytes({"b": 2, "a": 1})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**63, "\ud800", {"deep": [[]]}])
def test_what_could_not_be_read_is_not_written(value: Json) -> None:
    nested = value
    for _ in range(62):
        nested = [nested]

    with pytest.raises(ValueError, match=r"JSON|bits|surrogates|nested"):
        to_bytes(nested)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "Expecting value"),
        (b"{} {}", "Extra data"),
        (b"\xff", "can't decode"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b'{"a": 1, "a": 1}', "key 'a' appears twice"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b"[-Infinity]", "-Infinity is not a JSON number"),
        (b"[1e999]", "1e999 is beyond the range of a double"),
        (b"[9223372036854775808]", "beyond 64 bits"),
        (b"[" + b"9" * 5000 + b"]", "integer string conversion"),
        (b'["\\ud800"]', "surrogates not allowed"),
        (b"[" * 100_000, "nested deeper than 64 levels"),
        (b"[1,]", "is not strict JSON"),
    ],
)
def test_text_that_two_readers_could_understand_differently_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(ArtifactError, match=r"x\.json: is not strict JSON") as caught:
        from_bytes(data, "x.json")

    assert problem in caught.value.message
    assert caught.value.metadata == {"file": "x.json"}


def test_brackets_in_strings_do_not_nest() -> None:
    text = "[" * 1000 + '\\"['

    assert from_bytes(to_bytes([text]), "x.json") == [text]


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert from_bytes(b'"\\ud83d\\ude00"', "x.json") == "\U0001f600"


def test_a_record_gives_each_key_in_its_type() -> None:
    record = Record(
        {
            "name": "n",
            "count": 3,
            "size": 2,
            "flag": False,
            "names": ["a", "b"],
            "counts": [1, 2],
            "sizes": [1, 0.5],
            "rows": [[1.0], [2, 3]],
            "inner": {"x": 1},
            "inners": [{"x": 2}],
            "any": None,
        },
        "x.json",
    )

    assert (record.text("name"), record.integer("count"), record.number("size")) == ("n", 3, 2.0)
    assert record.flag("flag") is False
    assert (record.texts("names"), record.integers("counts"), record.numbers("sizes")) == (("a", "b"), (1, 2), (1, 0.5))
    assert record.rows("rows") == ((1.0,), (2.0, 3.0))
    assert record.record("inner").integer("x") == 1
    assert [item.integer("x") for item in record.records("inners")] == [2]
    assert record.json("any") is None
    record.end()


@pytest.mark.parametrize(
    ("value", "read", "key", "problem"),
    [
        (1, "text", "k", "k is 1, expected a string"),
        (1.0, "integer", "k", "k is 1.0, expected an integer"),
        (True, "integer", "k", "k is true, expected an integer"),
        (True, "number", "k", "k is true, expected a number"),
        ("1", "number", "k", 'k is "1", expected a number'),
        (0, "flag", "k", "k is 0, expected true or false"),
        ("ab", "texts", "k", 'k is "ab", expected a list'),
        (["a", None], "texts", "k[1]", "k[1] is null, expected a string"),
        ([1, 2.5], "integers", "k[1]", "k[1] is 2.5, expected an integer"),
        ([[1], [True]], "rows", "k[1][0]", "k[1][0] is true, expected a number"),
        ([1], "rows", "k[0]", "k[0] is 1, expected a list"),
        ([], "record", "k", "k is [], expected an object"),
        ([{}, 7], "records", "k[1]", "k[1] is 7, expected an object"),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_place(value: Json, read: str, key: str, problem: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        getattr(Record({"k": value}, "x.json"), read)("k")

    assert caught.value.message == f"x.json: {problem}"
    assert caught.value.metadata == {"file": "x.json", "key": key}


def test_a_missing_key_is_named_with_its_path() -> None:
    record = Record.from_bytes(b'{"outer": [{}]}', "x.json")

    with pytest.raises(ArtifactError, match=r"x\.json: outer\[0\]\.inner is missing"):
        record.records("outer")[0].text("inner")


def test_an_unknown_key_is_refused() -> None:
    record = Record({"a": 1, "typo": 2}, "x.json")
    record.integer("a")

    with pytest.raises(ArtifactError, match="typo is an unknown key"):
        record.end()


def test_a_document_that_is_no_object_is_refused() -> None:
    with pytest.raises(ArtifactError, match=r"^x\.json: is \[1\], expected an object$"):
        Record.from_bytes(b"[1]", "x.json")


def test_long_values_are_shown_in_part() -> None:
    with pytest.raises(ArtifactError) as caught:
        Record({"k": "x" * 10_000}, "x.json").integer("k")

    assert len(caught.value.message) < 100


class Side(StrEnum):
    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True, slots=True)
class ChoiceFields:
    """Fields with a fixed set of strings."""

    engine: Literal["eager", "fast"]
    side: Side


def test_literals_and_enumerations_read_back() -> None:
    record = Record({"engine": "fast", "side": "left"}, "x.json")
    assert read_as(record, ChoiceFields) == ChoiceFields("fast", Side.LEFT)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"engine": "slow", "side": "left"}, r"engine is 'slow', expected one of \['eager', 'fast'\]"),
        ({"engine": "fast", "side": "up"}, r"side is 'up', expected one of \['left', 'right'\]"),
    ],
)
def test_a_text_that_is_no_choice_is_refused_with_the_choices(value: dict[str, Json], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        read_as(Record(value, "x.json"), ChoiceFields)
