"""Statistics of `benchmarks.diffusion` against values computed by hand."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.drawing.digits import seconds_of
from benchmarks.drawing.resampling import paired_difference
from benchmarks.report import above


def test_the_interval_of_three_pairs_is_that_of_all_draws_of_three() -> None:
    before, differences = (0.5, 0.25, 1.0), (0.0, 1.0, 4.0)
    after = [one + more for one, more in zip(before, differences, strict=True)]
    means = [sum(drawn) / 3 for drawn in product(differences, repeat=3)]  # 27, equally likely
    found = paired_difference(before, after, draws=20_000)
    assert found.mean == pytest.approx(5 / 3)
    # 0, 0, 0 has a chance of 1 in 27, more than a fortieth, and so has 4, 4, 4
    assert (found.low, found.high) == (min(means), max(means)) == (0.0, 4.0)
    assert paired_difference(after, before).mean == pytest.approx(-5 / 3)


def test_what_all_pairs_have_in_common_does_not_widen_the_interval() -> None:
    before = np.random.default_rng(1).normal(0, 100, 50)
    found = paired_difference(before.tolist(), (before + 0.25).tolist(), draws=200)
    assert (found.low, found.high) == pytest.approx((0.25, 0.25))


def test_the_interval_covers_the_true_difference_in_95_of_100_samples() -> None:
    """Reward-like differences, most of them tiny and some large; 600 samples: 95 ± 3 %."""
    draw, covered, true = np.random.default_rng(2), 0, 0.02
    for sample in range(600):
        before = draw.uniform(0, 1, 300)
        after = before + true + draw.normal(0, 0.3, 300) * (draw.uniform(size=300) < 0.2)
        found = paired_difference(before.tolist(), after.tolist(), draws=600, seed=sample)
        covered += found.low <= true <= found.high
        assert found.low < found.mean < found.high
    assert 0.92 <= covered / 600 <= 0.98


def test_what_is_no_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="2 and 3 values; need equally many"):
        paired_difference([0.0, 1.0], [0.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="1 and 1 values; need equally many, and at least 2"):
        paired_difference([0.0], [1.0])


def test_a_bound_that_is_not_exceeded_is_missed() -> None:
    assert [above("gain", value, 0, detail="").ok for value in (1e-9, 0.0, -1.0)] == [True, False, False]
    assert above("gain", -1.0, 0, detail="", judged=False).ok is None


def test_a_round_that_was_repeated_after_a_stop_counts_once(tmp_path: Path) -> None:
    reports = [
        {"kind": "epoch", "epoch": 0, "seconds": 2.0},
        {"kind": "window", "epoch": 1, "seconds": 9.0},
        {"kind": "epoch", "epoch": 1, "seconds": 3.0},
        {"kind": "epoch", "epoch": 1, "seconds": 5.0},
    ]
    (tmp_path / "mine.run").mkdir()
    (tmp_path / "mine.run" / "reports.jsonl").write_text("\n".join(map(json.dumps, reports)))
    assert seconds_of(tmp_path / "mine") == 7.0


def test_the_control_has_the_schedule_of_its_sampler() -> None:
    from benchmarks.drawing.control import noising, same_schedule  # slow import

    torch.testing.assert_close(same_schedule().alphas_cumprod, noising().signal_share, atol=1e-5, rtol=0)
