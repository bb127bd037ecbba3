"""Qlib's Alpha158: 9 features of the day's candle, 4 prices relative to the close, and 29 families over 5 to 60 bars.

Names, order and formulas are those of Qlib's loader (Yang et al. 2020, "Qlib: An AI-oriented Quantitative Investment
Platform"), with two differences in notation. `Plus(x, 1e-12)` makes the epsilon of `x + 1e-12` in a denominator
explicit, for flat prices. The volume-weighted price, which daily bars lack, is (open + high + low + close) / 4.
Qlib computes a feature from a window's first bar on; here it is NaN until the window is full.

Qlib's constants are absolute, so features depend slightly on the size of prices and volumes: `CORR` takes the logarithm
of volume + 1, and 1e-12 is added to each range. Volumes are adjusted like prices, so splits change nothing. Prices in
other units change the values by less than 1e-6 if the day's range is at least 1e-6.

Alpha158 has no calendar features; those of the default set are used.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final, final

from predictor.features.defaults import load_default_features
from predictor.features.feature_set import FeatureDefinition, FeatureSet

WINDOWS: Final = (5, 10, 20, 30, 60)
"""Window lengths of the rolling families, in bars."""

_RANGE: Final = "Plus($high - $low, 1e-12)"
_UPPER: Final = "($high - Greater($open, $close))"
_LOWER: Final = "(Less($open, $close) - $low)"
_SHIFT: Final = "(2 * $close - $high - $low)"
_RISE: Final = "Greater($close - Ref($close, 1), 0)"
_FALL: Final = "Greater(Ref($close, 1) - $close, 0)"
_MOVES: Final = "(Sum(Abs($close - Ref($close, 1)), {n}) + 1e-12)"
_VOLUME_RISE: Final = "Greater($volume - Ref($volume, 1), 0)"
_VOLUME_FALL: Final = "Greater(Ref($volume, 1) - $volume, 0)"
_VOLUME_MOVES: Final = "(Sum(Abs($volume - Ref($volume, 1)), {n}) + 1e-12)"
_MOVED_VOLUME: Final = "Abs($close / Ref($close, 1) - 1) * $volume"

_OF_OPEN: Final = "share of the open"
_OF_CLOSE: Final = "share of the close"
_OF_RANGE: Final = "share of the day's range"
_OF_DAYS: Final = "share of the days"
_OF_MOVES: Final = "share of all moves"
_OF_VOLUME: Final = "share of the day's volume"

_CANDLE: Final = (
    FeatureDefinition("KMID", "($close - $open) / $open", "the day's body: close less open", _OF_OPEN),
    FeatureDefinition("KLEN", "($high - $low) / $open", "the day's range: high less low", _OF_OPEN),
    FeatureDefinition("KMID2", f"($close - $open) / {_RANGE}", "the day's body", _OF_RANGE),
    FeatureDefinition("KUP", f"{_UPPER} / $open", "the day's upper shadow: high less body", _OF_OPEN),
    FeatureDefinition("KUP2", f"{_UPPER} / {_RANGE}", "the day's upper shadow", _OF_RANGE),
    FeatureDefinition("KLOW", f"{_LOWER} / $open", "the day's lower shadow: body less low", _OF_OPEN),
    FeatureDefinition("KLOW2", f"{_LOWER} / {_RANGE}", "the day's lower shadow", _OF_RANGE),
    FeatureDefinition("KSFT", f"{_SHIFT} / $open", "twice the close's distance from the range's middle", _OF_OPEN),
    FeatureDefinition(
        "KSFT2", f"{_SHIFT} / {_RANGE}", "where the day closed in its range: -1 at the low, 1 at the high", "1"
    ),
)

_PRICES: Final = (
    FeatureDefinition("OPEN0", "$open / $close", "open against the close", "1"),
    FeatureDefinition("HIGH0", "$high / $close", "high against the close", "1"),
    FeatureDefinition("LOW0", "$low / $close", "low against the close", "1"),
    FeatureDefinition(
        "VWAP0", "($open + $high + $low + $close) / 4 / $close", "the day's middle price against the close", "1"
    ),
)


@final
@dataclass(frozen=True, slots=True)
class _Family:
    """One formula over several windows; `{n}` in expression and meaning is the window's length."""

    name: str
    expression: str
    meaning: str
    unit: str

    def members(self) -> Iterator[FeatureDefinition]:
        for n in WINDOWS:
            yield FeatureDefinition(f"{self.name}{n}", self.expression.format(n=n), self.meaning.format(n=n), self.unit)


_FAMILIES: Final = (
    _Family("ROC", "Ref($close, {n}) / $close", "close of {n} days ago against the close", "1"),
    _Family("MA", "Mean($close, {n}) / $close", "mean close of {n} days against the close", "1"),
    _Family("STD", "Std($close, {n}) / $close", "standard deviation of {n} closes", _OF_CLOSE),
    _Family("BETA", "Slope($close, {n}) / $close", "trend of {n} closes a day", _OF_CLOSE),
    _Family("RSQR", "Rsquare($close, {n})", "how straight {n} closes run: variance that their line explains", "share"),
    _Family("RESI", "Resi($close, {n}) / $close", "close less the line through {n} closes", _OF_CLOSE),
    _Family("MAX", "Max($high, {n}) / $close", "highest price of {n} days against the close", "1"),
    _Family("MIN", "Min($low, {n}) / $close", "lowest price of {n} days against the close", "1"),
    _Family("QTLU", "Quantile($close, {n}, 0.8) / $close", "80 % quantile of {n} closes against the close", "1"),
    _Family("QTLD", "Quantile($close, {n}, 0.2) / $close", "20 % quantile of {n} closes against the close", "1"),
    _Family("RANK", "Rank($close, {n})", "the close's rank among {n}: 1 for the highest", "share of the ranks"),
    _Family(
        "RSV",
        "($close - Min($low, {n})) / Plus(Max($high, {n}) - Min($low, {n}), 1e-12)",
        "where the close lies between the lowest and the highest price of {n} days",
        "share of the range",
    ),
    _Family("IMAX", "IdxMax($high, {n}) / {n}", "place of the highest high among {n} days: 1 for today", _OF_DAYS),
    _Family("IMIN", "IdxMin($low, {n}) / {n}", "place of the lowest low among {n} days: 1 for today", _OF_DAYS),
    _Family(
        "IMXD",
        "(IdxMax($high, {n}) - IdxMin($low, {n})) / {n}",
        "days from the lowest low of {n} to the highest high: positive where the low came first",
        _OF_DAYS,
    ),
    _Family(
        "CORR",
        "Corr($close, Log($volume + 1), {n})",
        "correlation of the close with the logarithm of volume over {n} days",
        "1",
    ),
    _Family(
        "CORD",
        "Corr($close / Ref($close, 1), Log($volume / Ref($volume, 1) + 1), {n})",
        "correlation of changes of the close with changes of volume over {n} days",
        "1",
    ),
    _Family("CNTP", "Mean($close > Ref($close, 1), {n})", "rising days among {n}", _OF_DAYS),
    _Family("CNTN", "Mean($close < Ref($close, 1), {n})", "falling days among {n}", _OF_DAYS),
    _Family(
        "CNTD",
        "Mean($close > Ref($close, 1), {n}) - Mean($close < Ref($close, 1), {n})",
        "rising less falling days among {n}",
        _OF_DAYS,
    ),
    _Family("SUMP", f"Sum({_RISE}, {{n}}) / {_MOVES}", "rises of the close in {n} days", _OF_MOVES),
    _Family("SUMN", f"Sum({_FALL}, {{n}}) / {_MOVES}", "falls of the close in {n} days", _OF_MOVES),
    _Family(
        "SUMD",
        f"(Sum({_RISE}, {{n}}) - Sum({_FALL}, {{n}})) / {_MOVES}",
        "rises less falls of the close in {n} days",
        _OF_MOVES,
    ),
    _Family("VMA", "Mean($volume, {n}) / ($volume + 1e-12)", "mean volume of {n} days", _OF_VOLUME),
    _Family("VSTD", "Std($volume, {n}) / ($volume + 1e-12)", "standard deviation of {n} volumes", _OF_VOLUME),
    _Family(
        "WVMA",
        f"Std({_MOVED_VOLUME}, {{n}}) / (Mean({_MOVED_VOLUME}, {{n}}) + 1e-12)",
        "how unevenly {n} days moved, each move weighted with its volume: standard deviation against the mean",
        "1",
    ),
    _Family("VSUMP", f"Sum({_VOLUME_RISE}, {{n}}) / {_VOLUME_MOVES}", "rises of volume in {n} days", _OF_MOVES),
    _Family("VSUMN", f"Sum({_VOLUME_FALL}, {{n}}) / {_VOLUME_MOVES}", "falls of volume in {n} days", _OF_MOVES),
    _Family(
        "VSUMD",
        f"(Sum({_VOLUME_RISE}, {{n}}) - Sum({_VOLUME_FALL}, {{n}})) / {_VOLUME_MOVES}",
        "rises less falls of volume in {n} days",
        _OF_MOVES,
    ),
)


@cache
def load_alpha158_features() -> FeatureSet:
    """The 158 features in Qlib's order, with the calendar features of the default set; the look-back is 61 bars."""
    rolling = tuple(member for family in _FAMILIES for member in family.members())
    return FeatureSet(observed=(*_CANDLE, *_PRICES, *rolling), known=load_default_features().known)
