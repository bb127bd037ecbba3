"""Splitting texts into training, validation and test."""

from collections import Counter

import pytest

from trainers.vits.errors import CorpusError
from trainers.vits.metadata import assign_splits

TEXTS = [f"text {number}" for number in range(400)]


def test_shares_are_near_what_was_asked() -> None:
    counts = Counter(assign_splits(TEXTS, selection=0.1, held_out=0.2).values())
    assert 25 <= counts["selection"] <= 55
    assert 60 <= counts["held_out"] <= 100


def test_numbers_of_texts_are_exact() -> None:
    counts = Counter(assign_splits(TEXTS, selection=12, held_out=24).values())
    assert counts == {"train": 364, "selection": 12, "held_out": 24}


def test_a_texts_part_depends_on_neither_the_order_nor_what_is_recorded_later() -> None:
    before = assign_splits(TEXTS[:200], selection=0.1, held_out=0.1)
    after = assign_splits(TEXTS[::-1], selection=0.1, held_out=0.1)
    assert before == {text: after[text] for text in TEXTS[:200]}


def test_the_same_words_stand_in_one_part_however_they_are_written() -> None:
    spelt = assign_splits([*TEXTS, *(f"  {text.upper()}!" for text in TEXTS)], selection=0.3, held_out=0.3)
    assert all(spelt[text] == spelt[f"  {text.upper()}!"] for text in TEXTS)


def test_each_part_has_a_text_even_where_the_shares_are_tiny() -> None:
    counts = Counter(assign_splits(TEXTS[:3], selection=1e-6, held_out=1e-6).values())
    assert counts == {"train": 1, "selection": 1, "held_out": 1}


@pytest.mark.parametrize("held_out", [1, 3, 0.99])
def test_too_few_texts_for_three_parts_are_refused(held_out: float) -> None:
    with pytest.raises(CorpusError, match="leave none of 2 different ones"):
        assign_splits(["a", "a!", "b"], selection=1, held_out=held_out)
