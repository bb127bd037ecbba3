"""Combination of the members' forecasts and attributions of an ensemble."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import BoolArray, FloatArray
from predictor.artifact import EnsembleManifest
from predictor.errors import QuantraError
from predictor.forecast import Attribution, Forecast, RowKind
from predictor.model.predictor import ModelIdentity, hash_universe, rank_scores
from predictor.networks import find_anchor_index, remove_crossings_in_place
from predictor.skill import Skill

RowKey = tuple[RowKind, str]


def average_quantiles(manifest: EnsembleManifest, members: Sequence[FloatArray]) -> FloatArray:
    """Average the members' quantiles [N, H, Q] by the ensemble's weights.

    Each quantile is a mean over the members (Vincent averaging; Ratcliff 1979, Lichtendahl, Grushka-Cockayne & Winkler
    2013). Weights that differ by quantile may let the means cross, so these are sorted.
    """
    if not manifest.weights:
        return _average(members)
    return np.sort(weigh_quantiles(manifest.weights, members), axis=-1)


def weigh_quantiles(weights: Sequence[Sequence[float]], members: Sequence[FloatArray]) -> FloatArray:
    """Weighted means [N, H, Q], which may cross, by weights [M][Q]."""
    return (np.array(weights)[:, None, None, :] * np.stack(members)).sum(axis=0)


def combine_quantiles(manifest: EnsembleManifest, members: Sequence[FloatArray], scale: FloatArray) -> FloatArray:
    """Compute the ensemble's quantiles [N, H, Q] in the target's unit, non-decreasing along Q.

    The average of the members' quantiles, plus the ensemble's own conformal offsets.

    Args:
        manifest: the ensemble's manifest.
        members: calibrated quantiles [N, H, Q] of each member, in the target's unit.
        scale: [N, H] mean of the members' window volatilities.
    """
    unit = scale * manifest.target.spread
    quantiles = average_quantiles(manifest, members) + unit[..., None] * np.array(manifest.conformal.offsets)
    return remove_crossings_in_place(quantiles, find_anchor_index(manifest.quantiles))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointRanking:
    """The joint ranking of the members."""

    scores: FloatArray
    """[S, H] negative mean of the members' ranks, because scores of different networks are not comparable."""
    ranks: NDArray[np.int32]
    """[S, H] by these scores, 1 = best; 0 for a symbol that a member cannot forecast."""
    universe: str
    """Hash of the symbols that were ranked together."""


def combine_rankings(members: Sequence[Forecast], usable: BoolArray) -> JointRanking | None:
    """Rank the symbols that every member can forecast (`usable` [S]); None if a member does not rank."""
    available = [member.ranks for member in members if member.ranks is not None]
    if len(available) < len(members):
        return None
    scores = np.where(usable[:, None], -_average(available), np.nan)
    ranks = np.zeros(scores.shape, np.int32)
    ranks[usable] = rank_scores(scores[usable])
    return JointRanking(scores=scores, ranks=ranks, universe=hash_universe(members[0].symbols, usable))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointPrediction:
    """The ensemble's forecast at one horizon and quantile, and the convergence criteria of its explanation."""

    values: FloatArray
    """[S] in the target's unit; NaN for a symbol that a member cannot forecast."""
    floor: FloatArray
    """[S] smallest difference that a gap is measured against."""
    tolerance: float
    """Largest relative gap that counts as converged."""
    weights: tuple[float, ...] = ()
    """[M] weights of the members at the point's quantile; empty: all are equal."""
    refusals: Mapping[str, QuantraError] = field(default_factory=dict[str, QuantraError])
    """The error of each symbol that some member cannot forecast."""

    @property
    def usable(self) -> BoolArray:
        """[S] whether the symbol has a forecast."""
        return np.isfinite(self.values)


def combine_attributions(
    identity: ModelIdentity,
    by_member: Mapping[str, Attribution],
    prediction: JointPrediction,
    warnings: tuple[str, ...],
    skill: Skill | None = None,
) -> Attribution:
    """Average the members' contributions row by row, by their weights; a row that a member lacks counts as 0.

    The row `conformal` includes the ensemble's own offsets, and the shift of weighted quantiles that were sorted. The
    gap is the largest of the members' gaps and the ensemble's own, so the explanation converges only if all of them do.
    `nodes` is the largest count of any member. Internals are kept per member and prefixed with its name: weights of
    different networks cannot be averaged.
    """
    members, weights = list(by_member.values()), prediction.weights
    rows = _merge_rows(members)
    longest = max(members, key=lambda attribution: len(attribution.sessions))
    per_row = _average([_align_rows(attribution, rows) for attribution in members], weights)
    per_row[:, rows.index((RowKind.CONFORMAL, RowKind.CONFORMAL.value))] += prediction.values - _average(
        [attribution.prediction for attribution in members], weights
    )
    baseline = _average([attribution.baseline_prediction for attribution in members], weights)
    difference = prediction.values - baseline
    own_gap = np.abs(per_row.sum(axis=1) - difference) / np.maximum(np.abs(difference), prediction.floor)
    gap = np.maximum.reduce([own_gap, *(attribution.relative_gap for attribution in members)])
    usable = prediction.usable
    return replace(
        longest,
        baseline=", ".join(dict.fromkeys(attribution.baseline for attribution in members)),
        row_names=tuple(name for _, name in rows),
        row_kinds=tuple(kind for kind, _ in rows),
        per_row=_mask_unusable(per_row, usable),
        per_time=_average_times(members, weights, usable),
        cells=_average_cells(members, weights, [name for kind, name in rows if kind is RowKind.OBSERVED], usable),
        prediction=prediction.values,
        baseline_prediction=_mask_unusable(baseline, usable),
        relative_gap=gap,
        converged=gap <= prediction.tolerance,
        nodes=np.where(usable, np.maximum.reduce([attribution.nodes for attribution in members]), 0).astype(np.int32),
        model=identity.name,
        version=identity.version,
        weights_hash=identity.weights_hash,
        warnings=warnings,
        internals=tuple(
            replace(
                internal, name=f"{name}: {internal.name}", values=np.where(usable[:, None], internal.values, np.nan)
            )
            for name, attribution in by_member.items()
            for internal in attribution.internals
        ),
        skill=skill,
        refusals=prediction.refusals,
    )


def _merge_rows(members: Sequence[Attribution]) -> list[RowKey]:
    """Merge the rows of all members, sorted by kind, then by first appearance."""
    kinds = list(RowKind)
    offsets = (RowKind.CONFORMAL, RowKind.CONFORMAL.value)  # which adopted members lack
    keys = dict.fromkeys([*(key for member in members for key in _list_keys(member)), offsets])
    return sorted(keys, key=lambda key: kinds.index(key[0]))


def _list_keys(attribution: Attribution) -> list[RowKey]:
    return list(zip(attribution.row_kinds, attribution.row_names, strict=True))


def _align_rows(attribution: Attribution, rows: list[RowKey]) -> FloatArray:
    """Arrange a member's contributions [S, R] by the merged rows."""
    placed = np.zeros((len(attribution.symbols), len(rows)))
    placed[:, [rows.index(key) for key in _list_keys(attribution)]] = attribution.per_row
    return placed


def _average_times(members: Sequence[Attribution], weights: Sequence[float], usable: BoolArray) -> FloatArray | None:
    """Average [S, T] over the longest encoder; a session that a member does not read counts as 0."""
    available = [attribution.per_time for attribution in members if attribution.per_time is not None]
    if len(available) < len(members):
        return None
    length = max(times.shape[1] for times in available)
    return _mask_unusable(_average([_pad_start(times, length) for times in available], weights), usable)


def _average_cells(
    members: Sequence[Attribution], weights: Sequence[float], observed: Sequence[str], usable: BoolArray
) -> FloatArray | None:
    """Average [S, T, F] over the longest encoder and the observed features of all members."""
    available = [(attribution, attribution.cells) for attribution in members if attribution.cells is not None]
    if len(available) < len(members):
        return None
    length = max(cells.shape[1] for _, cells in available)
    placed: list[FloatArray] = []
    for attribution, cells in available:
        names = [name for kind, name in _list_keys(attribution) if kind is RowKind.OBSERVED]
        wide = np.zeros((*cells.shape[:2], len(observed)))
        wide[..., [observed.index(name) for name in names]] = cells
        placed.append(_pad_start(wide, length))
    return _mask_unusable(_average(placed, weights), usable)


def _pad_start(values: FloatArray, length: int) -> FloatArray:
    """Pad with leading zeros to [S, length, …]."""
    before = np.zeros((values.shape[0], length - values.shape[1], *values.shape[2:]))
    return np.concatenate([before, values], axis=1)


def _average(values: Sequence[NDArray[np.number]], weights: Sequence[float] = ()) -> FloatArray:
    stacked = np.stack(values)
    return np.average(stacked, axis=0, weights=weights) if weights else np.mean(stacked, axis=0)


def _mask_unusable(values: FloatArray, usable: BoolArray) -> FloatArray:
    """Set unusable symbols of [S, …] to NaN."""
    values[~usable] = np.nan
    return values
