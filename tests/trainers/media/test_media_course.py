"""How steps become rounds, whatever is trained."""

import pytest

from trainers.media.course import pace_of


@pytest.mark.parametrize(
    ("steps", "rounds", "round_steps"), [(1, 1, 1), (149, 1, 149), (151, 2, 76), (250, 2, 125), (3000, 30, 100)]
)
def test_steps_become_whole_rounds_of_about_a_hundred(steps: int, rounds: int, round_steps: int) -> None:
    pace = pace_of(steps)
    assert (pace.rounds, pace.round_steps) == (rounds, round_steps)
    assert steps <= rounds * round_steps < steps + rounds
