"""Acceptance of a corrected voice, by hand and by simulation."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import stdtrit

from trainers.vits.voice_correction import (
    ACCEPTED_BY_CHANCE,
    LEVEL,
    MIN_HELD_OUT,
    RELIABLE,
    SATURATED,
    SpeechScores,
    VoiceComparison,
    bootstrap_change,
    decide,
)

SHARP = 0.01
"""The error rate of a reliable recogniser."""


def spoken(*distances: float | None, errors: float = 0.4, length: float | None = 0.1) -> SpeechScores:
    names = tuple(f"clip {place}" for place in range(len(distances)))
    return SpeechScores(names=names, distances=distances, error_rate=errors, length_error=length)


SAME = VoiceComparison(spoken(1.0, 0.8, 1.2), spoken(1.0, 0.8, 1.2))
LEARNT = VoiceComparison(spoken(1.0, 0.8, 1.2, 0.9, 1.1, 1.0, 1.0), spoken(0.8, 0.7, 1.0, 0.8, 0.9, 0.9, 0.85))


def with_figures(comparison: VoiceComparison, **changes: Any) -> VoiceComparison:
    """Evaluations with other figures of the new voice."""
    return replace(comparison, after=replace(comparison.after, **changes))


def failed_criteria(corrections: VoiceComparison = LEARNT, base: VoiceComparison = SAME, **more: Any) -> list[str]:
    """Names of the failed criteria."""
    decision = decide(corrections, base, recogniser_error_rate=more.pop("recogniser", SHARP), **more)
    failed = [line.name for line in decision.lines if line.holds is False]
    assert decision.accepted == (not failed)
    return failed


def test_what_is_nearer_to_every_correction_and_as_good_elsewhere_is_accepted() -> None:
    decision = decide(LEARNT, SAME, recogniser_error_rate=SHARP)
    assert decision.accepted
    first = decision.lines[0]
    assert first.before == pytest.approx(1.0)
    assert first.after == pytest.approx(0.85)
    assert first.change == pytest.approx(-0.15)
    assert first.interval is not None
    assert -0.25 < first.interval[0] < -0.15 < first.interval[1] < -0.05


def test_before_and_after_are_not_exchangeable() -> None:
    assert failed_criteria(VoiceComparison(LEARNT.after, LEARNT.before)) == ["corrections, distance"]
    assert not decide(
        VoiceComparison(LEARNT.after, LEARNT.before), SAME, recogniser_error_rate=SHARP
    ).has_learnt_corrections
    assert decide(
        LEARNT, VoiceComparison(SAME.after, spoken(2.0, 2.0, 2.0)), recogniser_error_rate=SHARP
    ).has_learnt_corrections


def test_a_mean_that_one_clip_lowers_is_luck() -> None:
    lucky = VoiceComparison(spoken(*[1.0] * 6), spoken(0.2, 1.01, 1.01, 0.99, 1.01, 1.0))
    assert failed_criteria(lucky) == ["corrections, distance"]


def test_too_few_corrections_are_inconclusive() -> None:
    few = VoiceComparison(spoken(*[1.0] * (MIN_HELD_OUT - 1)), spoken(*[0.5] * (MIN_HELD_OUT - 1)))
    assert failed_criteria(few) == ["corrections, distance"]


@pytest.mark.parametrize(("factor", "failed"), [(1.049, []), (1.051, ["base, distance"]), (0.5, [])])
def test_the_base_may_be_a_twentieth_farther(factor: float, failed: list[str]) -> None:
    worse_clips = tuple(factor * one for one in SAME.before.distances if one is not None)
    assert failed_criteria(base=with_figures(SAME, distances=worse_clips)) == failed
    assert failed_criteria(earlier=with_figures(SAME, distances=worse_clips)) == [
        f"earlier corrections{one[4:]}" for one in failed
    ]


@pytest.mark.parametrize(("rate", "failed"), [(0.419, []), (0.421, ["base, error rate"]), (0.1, [])])
def test_the_base_may_be_heard_wrongly_a_twentieth_more(rate: float, failed: list[str]) -> None:
    assert failed_criteria(base=with_figures(SAME, error_rate=rate)) == failed


@pytest.mark.parametrize(("rate", "failed"), [(0.0399, []), (0.0401, ["base, error rate"])])
def test_of_a_voice_that_is_understood_two_characters_in_a_hundred_may_be_lost(rate: float, failed: list[str]) -> None:
    understood = replace(SAME, before=spoken(1.0, 0.8, 1.2, errors=0.02))
    assert failed_criteria(base=with_figures(understood, error_rate=rate)) == failed


def test_clips_of_the_base_that_are_farther_are_named_the_worst_first() -> None:
    told = VoiceComparison(spoken(1.0, 1.0, 1.0, 1.0, None), spoken(1.06, 1.04, None, 1.5, 1.0))
    assert decide(LEARNT, told, recogniser_error_rate=SHARP).worse_clips == ("clip 3", "clip 0")
    assert (
        with_figures(told, distances=(1.06, 1.06, None, 1.5, 1.0)).worse_clips == ()
    )  # most clips: the voice itself is worse


def test_an_error_rate_counts_only_where_the_recogniser_hears_well_and_the_voice_does_not_babble() -> None:
    worse = with_figures(SAME, error_rate=0.9)
    assert failed_criteria(base=worse, recogniser=RELIABLE) == ["base, error rate"]
    assert failed_criteria(base=worse, recogniser=RELIABLE + 0.01) == []
    babble = replace(worse, before=replace(SAME.before, error_rate=SATURATED))
    assert failed_criteria(base=babble) == []
    assert "chance" in str(decide(LEARNT, babble, recogniser_error_rate=SHARP).lines[2])


def test_lengths_of_the_base_may_hardly_err_more() -> None:
    assert failed_criteria(base=with_figures(SAME, length_error=0.119)) == []
    assert failed_criteria(base=with_figures(SAME, length_error=0.121)) == ["base, length error"]
    assert failed_criteria(base=with_figures(SAME, length_error=None)) == ["base, length error"]


def test_a_text_that_became_unspeakable_refuses_the_voice() -> None:
    silent = with_figures(SAME, distances=(None, 0.8, 1.2))
    assert failed_criteria(base=silent) == ["base, texts not said"]
    assert failed_criteria(earlier=silent) == ["earlier corrections, texts not said"]
    lost = with_figures(LEARNT, distances=(None, *LEARNT.after.distances[1:]))
    assert failed_criteria(lost) == ["corrections, texts not said"]


def test_a_text_that_is_said_for_the_first_time_is_neither_gain_nor_loss() -> None:
    gained = replace(SAME, before=spoken(None, 0.8, 1.2))
    assert gained.pairs == ((0.8, 0.8), (1.2, 1.2))
    assert failed_criteria(base=gained) == []
    nothing = VoiceComparison(spoken(*[None] * 7, length=None), LEARNT.after)
    assert failed_criteria(nothing) == ["corrections, distance"]


def test_lines_tell_figures_change_interval_and_verdict() -> None:
    lines = [str(line) for line in decide(LEARNT, SAME, recogniser_error_rate=SHARP).lines]
    assert lines[0].startswith("corrections, distance: 1 → 0.85, -15.0% (-")
    assert f"holds, the {LEVEL:.0%} interval must lie below 0" in lines[0]
    assert lines[1] == "base, distance: 1 → 1, +0.0%: holds, at most 5% more"


@pytest.mark.slow
@pytest.mark.parametrize("count", [MIN_HELD_OUT, 8, 20])
@pytest.mark.parametrize("spread", ["even", "heavy"])
def test_where_nothing_changed_the_stated_share_is_accepted_at_most(count: int, spread: str) -> None:
    draw = np.random.default_rng(count)
    trials, accepted = 200, 0
    for _ in range(trials):
        level = draw.lognormal(0, 0.3, size=(count, 1))
        noise = draw.normal(size=(count, 2)) if spread == "even" else draw.standard_t(3, size=(count, 2))
        pairs = level * np.exp(0.05 * noise)
        _, high = bootstrap_change([(old, new) for old, new in pairs.tolist()])
        accepted += high < 0
    assert accepted / trials <= ACCEPTED_BY_CHANCE


def test_an_interval_of_few_pairs_is_as_wide_as_students() -> None:
    """For small changes around 0, the ratio of means is the mean of changes."""
    changes = 0.001 * np.random.default_rng(4).normal(size=MIN_HELD_OUT)
    low, high = bootstrap_change([(1.0, 1.0 + change) for change in changes.tolist()])
    half = stdtrit(MIN_HELD_OUT - 1, (1 + LEVEL) / 2) * changes.std(ddof=1) / np.sqrt(MIN_HELD_OUT)
    assert (high - low) / 2 == pytest.approx(half, rel=0.08)


def test_a_gain_of_a_tenth_in_twenty_clips_is_seen() -> None:
    draw = np.random.default_rng(0)
    pairs = np.exp(0.08 * draw.normal(size=(20, 2))) * [1.0, 0.9]
    low, high = bootstrap_change([(old, new) for old, new in pairs.tolist()])
    assert low < pairs[:, 1].mean() / pairs[:, 0].mean() - 1 < high < 0
