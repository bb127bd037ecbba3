"""Learning rates as functions of the steps taken."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from trainers.loop.errors import SettingsError
from trainers.loop.optimizers import cosine, warmup_cosine


@pytest.mark.parametrize(
    ("step", "factor"),
    [(0, 0.2), (3, 0.8), (4, 1.0), (8, 0.55 + 0.45 * math.cos(math.pi * 0.4)), (9, 0.55), (14, 0.1), (99, 0.1)],
)
def test_the_factor_rises_on_a_line_and_falls_on_a_cosine_to_the_floor(step: int, factor: float) -> None:
    assert warmup_cosine(step, warmup=4, total=14, floor=0.1) == pytest.approx(factor)


def test_without_a_warm_up_the_first_step_has_the_full_rate() -> None:
    assert warmup_cosine(0, warmup=0, total=10) == 1.0


def optimizer() -> torch.optim.SGD:
    return torch.optim.SGD([Parameter(torch.zeros(1))], lr=2.0)


def test_the_scheduler_follows_the_function() -> None:
    trained = optimizer()
    scheduler = cosine(trained, warmup_steps=1, total_steps=5, floor=0.5)
    rates: list[float | Tensor] = []
    for _ in range(6):
        rates.append(scheduler.get_last_lr()[0])
        trained.step()
        scheduler.step()
    assert rates == pytest.approx([2 * warmup_cosine(step, warmup=1, total=5, floor=0.5) for step in range(6)])


def test_a_scheduler_that_is_loaded_goes_on_where_the_other_was() -> None:
    first, second = optimizer(), optimizer()
    before = cosine(first, warmup_steps=2, total_steps=9)
    for _ in range(4):
        first.step()
        before.step()
    after = cosine(second, warmup_steps=2, total_steps=9)
    after.load_state_dict(before.state_dict())
    for trained, scheduler in ((first, before), (second, after)):
        trained.step()
        scheduler.step()
    assert after.get_last_lr() == before.get_last_lr() == pytest.approx([2 * warmup_cosine(5, warmup=2, total=9)])


@pytest.mark.parametrize(
    ("warmup", "total", "floor"), [(-1, 5, 0.0), (5, 5, 0.0), (0, 0, 0.0), (0, 5, 1.5), (0, 5, -1.0)]
)
def test_numbers_out_of_their_range_are_refused(warmup: int, total: int, floor: float) -> None:
    with pytest.raises(SettingsError, match=r"warmup_steps is|floor is"):
        cosine(optimizer(), warmup_steps=warmup, total_steps=total, floor=floor)
