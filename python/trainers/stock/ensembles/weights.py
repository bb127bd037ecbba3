"""Choice and weights of an ensemble's members, from their forecasts of the calibration days.

On these days each member has learnt only its offsets, as many as every other. The selection days would favour networks,
which chose their epoch there.

Weights fitted on few independent days lose to equal ones. So members that are significantly worse than the best are
left out and the rest is averaged; fitted weights are used only as far as the number of independent blocks allows.

Shapes: N windows, H horizons, Q quantiles, M members.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

import numpy as np

from predictor.arrays import FloatArray
from predictor.card import RefutedMember
from predictor.errors import ConfigurationError
from trainers.stock.evaluation.comparison import average_horizons, measure_improvement, pinball
from trainers.stock.evaluation.evaluation_set import EvaluationSet

WeightRule = Literal["equal", "screened", "fitted"]
"""equal: all members; screened: equal, without refuted members; fitted: screened, then leaning to fitted weights."""


def read_weight_rule(text: str) -> WeightRule:
    """Read the rule in an ensemble's card.

    Raises:
        ConfigurationError: this version does not know the rule.
    """
    for rule in get_args(WeightRule):
        if text == rule:
            return rule
    raise ConfigurationError(f"the ensemble's weights are {text!r}, which this version does not know; update Quantra")


MIN_BLOCKS_TO_FIT: Final = 16
"""Independent blocks below which fitted weights lose to equal ones."""

BLOCKS_OF_HALF_WEIGHT: Final = 40
"""Independent blocks at which fitted and equal weights are averaged evenly."""

STEPS: Final = 2000
"""Steps of the fit; the mean of the later half is the result."""

RATE: Final = 10.0
"""Length of the first step, relative to the distance between the members. Losses then end within .01 % of the least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberChoice:
    """The members to combine and their weights, and the days that these were chosen on."""

    rule: WeightRule
    first: int
    """First decision day, yyyymmdd."""
    last: int
    days: int
    blocks: int
    """Independent blocks of these days."""
    days_short: int
    """Days missing to refute any member; 0 if there are enough."""
    kept: tuple[str, ...]
    refuted: tuple[RefutedMember, ...]
    weights: tuple[tuple[float, ...], ...] = ()
    """[M][Q] of the members that are kept; empty: all are equal."""
    lean: float = 0.0
    """Share of the fitted weights in `weights`, the rest of which are equal."""


def choose_members(part: EvaluationSet, forecasts: Mapping[str, FloatArray], rule: WeightRule) -> MemberChoice:
    """Choose and weigh members by their calibrated forecasts [N, H, Q].

    Raises:
        ConfigurationError: the part has too few blocks for fitted weights.
    """
    blocks = count_blocks(part)
    if rule == "fitted" and blocks < MIN_BLOCKS_TO_FIT:
        raise ConfigurationError(
            f"the calibration days that all members share hold {blocks} independent blocks of {part.wanted_block} "
            f"sessions, but fitted weights need {MIN_BLOCKS_TO_FIT}, or they are worse than equal ones; use "
            "--weights screened, or train the members with a longer calibration part (--splits)"
        )
    losses = {name: average_horizons(part, pinball(part, one)) for name, one in forecasts.items()}
    refuted = screen_members(part, losses)
    kept = tuple(name for name in forecasts if name not in {one.name for one in refuted})
    first, last = part.span
    choice = MemberChoice(
        rule=rule,
        first=first,
        last=last,
        days=part.days,
        blocks=blocks,
        days_short=part.days_short,
        kept=kept,
        refuted=refuted,
    )
    if rule == "screened" or len(kept) == 1:
        return choice
    lean = blocks / (blocks + BLOCKS_OF_HALF_WEIGHT)
    weights = lean_weights(fit_weights(part, [forecasts[name] for name in kept]), lean)
    return replace(choice, weights=tuple(map(tuple, weights.tolist())), lean=lean)


def count_blocks(part: EvaluationSet) -> int:
    """Number of independent blocks of decision days."""
    return part.days // part.wanted_block


def screen_members(part: EvaluationSet, losses: Mapping[str, FloatArray]) -> tuple[RefutedMember, ...]:
    """Members whose losses [N] are significantly above those of the best, by a paired bootstrap of blocks of days.

    None is refuted if the days are too few to tell skill from luck.
    """
    if part.days_short:
        return ()
    best = min(losses, key=lambda name: float(np.nanmean(losses[name])))
    gains = {name: measure_improvement(part, one, losses[best]) for name, one in losses.items() if name != best}
    return tuple(
        RefutedMember(name=name, rival=best, improvement=gain.value, lower=gain.lower, upper=gain.upper)
        for name, gain in gains.items()
        if gain.upper < 0
    )


def fit_weights(part: EvaluationSet, members: Sequence[FloatArray]) -> FloatArray:
    """[M, Q] weights of forecasts [N, H, Q] with the smallest pinball loss; horizons count as in `average_horizons`.

    Each weight is 0 or more, and their sum is 1 per quantile.
    """
    known = np.isfinite(part.outcomes)
    importance = (known / (part.spread * np.maximum(known.sum(axis=1, keepdims=True), 1)))[known]
    outcomes = part.outcomes[known]
    return np.stack(
        [
            _fit_quantile(level, outcomes, np.stack([one[..., q][known] for one in members], axis=1), importance)
            for q, level in enumerate(part.levels)
        ],
        axis=1,
    )


def _fit_quantile(level: float, outcomes: FloatArray, quantiles: FloatArray, importance: FloatArray) -> FloatArray:
    """[M] weights of quantiles [K, M], by exponentiated subgradients (Kivinen & Warmuth 1997)."""
    apart = quantiles - quantiles.mean(axis=1, keepdims=True)
    reach = float(np.max(np.abs(apart).T @ importance))
    count = quantiles.shape[1]
    if reach == 0:  # the members agree
        return np.full(count, 1 / count)
    logits, total = np.zeros(count), np.zeros(count)
    for step in range(STEPS):
        weights = np.exp(logits - logits.max())
        weights /= weights.sum()
        if step >= STEPS // 2:
            total += weights
        misses = np.where(outcomes < quantiles @ weights, level - 1, level)
        logits += RATE * (apart.T @ (importance * misses)) / (reach * np.sqrt(step + 1))
    return total / total.sum()


def lean_weights(fitted: FloatArray, lean: float) -> FloatArray:
    """[M, Q] weights between equal ones (`lean` 0) and fitted ones [M, Q] (`lean` 1)."""
    return lean * fitted + (1 - lean) / len(fitted)
