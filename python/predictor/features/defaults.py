"""The default features: 23 of the bars and 5 of the calendar, with a look-back of 81 bars.

Assets that trade every day of the week have no nights and no holidays, which leaves 22 and 3 of them.

Prices occur only in ratios, so a constant factor of all prices changes nothing, and money traded only relative to its
own past. Denominators that are sums have an epsilon: relative to the price for prices, and `1e-8`, the variance of
0.01 % a day, for variances. Infinite averages are truncated; the omitted weight is 0.3 % in ATR and RSI, and at most
1 % in each average of MACD.

Sources: Parkinson 1980 (high-low volatility), Garman and Klass 1980, Wilder 1978 (ATR, RSI), Appel (MACD), Bollinger,
Donchian; Corsi 2009 for volatility over several spans.
"""

from functools import cache
from typing import Final

from predictor.features.feature_set import FeatureDefinition, FeatureSet

_RETURN: Final = "Log($close / Ref($close, 1))"
_RANGE: Final = "Log($high / $low)"
_BODY: Final = "Log($close / $open)"
_PARKINSON: Final = f"({_RANGE} * {_RANGE} / 2.772588722239781)"  # 4 ln 2
_GARMAN_KLASS: Final = f"({_RANGE} * {_RANGE} / 2 - 0.3862943611198906 * {_BODY} * {_BODY})"  # 2 ln 2 - 1
_TRUE_RANGE: Final = "Greater($high, Ref($close, 1)) - Less($low, Ref($close, 1))"
_GAIN: Final = "Greater(Delta($close, 1), 0)"
_MACD: Final = "(EMA($close, 12, 60) - EMA($close, 26, 60))"
_MONEY_PAST: Final = "(Mean($money, 60) + 1e-12)"
_MONEY: Final = f"Log(($money + 0.01 * Mean($money, 60) + 1e-12) / {_MONEY_PAST})"


def _write_volatility(variance: str, bars: int) -> str:
    return f"Log(Mean({variance}, {bars}) + 1e-8) / 2"


def _write_volatility_ratio(variance: str, bars: int) -> str:
    recent = variance if bars == 1 else f"Mean({variance}, {bars})"
    return f"Log(({recent} + 1e-8) / (Mean({variance}, 60) + 1e-8)) / 2"


_LOG_VOLATILITY: Final = "logarithm of daily volatility"
_LOG_RATIO: Final = "logarithm of a ratio"

_OBSERVED: Final = (
    FeatureDefinition("return_1", _RETURN, "return since the close before", "log return"),
    FeatureDefinition("return_5", "Log($close / Ref($close, 5))", "return of 5 days", "log return"),
    FeatureDefinition("return_20", "Log($close / Ref($close, 20))", "return of 20 days", "log return"),
    FeatureDefinition("gap", "Log($open / Ref($close, 1))", "overnight return, close to open", "log return"),
    FeatureDefinition("intraday", _BODY, "return of the day, open to close", "log return"),
    FeatureDefinition(
        "close_in_day",
        "($close - $low - ($high - $close)) / ($high - $low + 1e-9 * $close)",
        "where the day closed in its range: -1 at the low, 1 at the high",
        "1",
    ),
    FeatureDefinition(
        "parkinson_60", _write_volatility(_PARKINSON, 60), "high-low volatility of 60 days", _LOG_VOLATILITY
    ),
    FeatureDefinition(
        "parkinson_1_60",
        _write_volatility_ratio(_PARKINSON, 1),
        "high-low volatility of today against 60 days",
        _LOG_RATIO,
    ),
    FeatureDefinition(
        "parkinson_5_60", _write_volatility_ratio(_PARKINSON, 5), "high-low volatility of 5 days against 60", _LOG_RATIO
    ),
    FeatureDefinition(
        "parkinson_20_60",
        _write_volatility_ratio(_PARKINSON, 20),
        "high-low volatility of 20 days against 60",
        _LOG_RATIO,
    ),
    FeatureDefinition(
        "garman_klass_20",
        _write_volatility(_GARMAN_KLASS, 20),
        "volatility of 20 days from open, high, low and close",
        _LOG_VOLATILITY,
    ),
    FeatureDefinition(
        "garman_klass_5_60",
        _write_volatility_ratio(_GARMAN_KLASS, 5),
        "volatility of 5 days against 60, from open, high, low and close",
        _LOG_RATIO,
    ),
    FeatureDefinition(
        "close_to_range_20",
        f"Log((Mean({_RETURN} * {_RETURN}, 20) + 1e-8) / (Mean({_PARKINSON}, 20) + 1e-8)) / 2",
        "close-to-close volatility against high-low volatility of 20 days: high where the nights or trends move prices",
        _LOG_RATIO,
    ),
    FeatureDefinition(
        "downside_20",
        f"Mean(Less({_RETURN}, 0) * {_RETURN}, 20) / (Mean({_RETURN} * {_RETURN}, 20) + 1e-8) - 0.5",
        "share of falling days in the variance of 20 days, less one half",
        "share",
    ),
    FeatureDefinition(
        "atr_14", f"Wilder({_TRUE_RANGE}, 14, 80) / $close", "average true range against the close", "share of price"
    ),
    FeatureDefinition(
        "rsi_14",
        f"Wilder({_GAIN}, 14, 80) / (Wilder(Abs(Delta($close, 1)), 14, 80) + 1e-9 * $close) - 0.5",
        "relative strength index, 0 to 1, less one half",
        "share",
    ),
    FeatureDefinition(
        "macd_histogram",
        f"({_MACD} - EMA({_MACD}, 9, 21)) / $close",
        "MACD (12, 26) less its average of 9, against the close",
        "share of price",
    ),
    FeatureDefinition(
        "bollinger_20",
        "($close - Mean($close, 20)) / (Std($close, 20) + 1e-9 * Mean($close, 20))",
        "distance from the mean of 20 closes",
        "standard deviations",
    ),
    FeatureDefinition(
        "channel_20",
        "($close - Min($low, 20)) / (Max($high, 20) - Min($low, 20) + 1e-9 * $close) - 0.5",
        "place between the lowest low and the highest high of 20 days, less one half",
        "share",
    ),
    FeatureDefinition("slope_20", "Slope(Log($close), 20)", "trend of the logarithm of the close", "log return a day"),
    FeatureDefinition("money_1_60", _MONEY, "money traded today against the mean of 60 days", _LOG_RATIO),
    FeatureDefinition(
        "money_5_60",
        f"Log((Mean($money, 5) + 0.01 * Mean($money, 60) + 1e-12) / {_MONEY_PAST})",
        "money traded in 5 days against the mean of 60 days",
        _LOG_RATIO,
    ),
    FeatureDefinition(
        "return_money_20",
        f"Corr({_RETURN}, Delta({_MONEY}, 1), 20)",
        "correlation of returns with changes of money traded over 20 days",
        "1",
    ),
)

_KNOWN: Final = (
    FeatureDefinition("weekday", "$weekday / 4 - 0.5", "Monday -0.5 to Friday 0.5", "1"),
    FeatureDefinition(
        "to_month_end",
        "Less($sessions_to_month_end, 10) / 10 - 0.5",
        "-0.5 on the month's last session, 0.5 ten or more before it",
        "10 sessions",
    ),
    FeatureDefinition(
        "from_month_start",
        "Less($sessions_from_month_start, 10) / 10 - 0.5",
        "-0.5 on the month's first session, 0.5 ten or more after it",
        "10 sessions",
    ),
    FeatureDefinition(
        "to_holiday",
        "Less($days_to_holiday, 10) / 10 - 0.5",
        "close to -0.5 just before a holiday, 0.5 ten or more days before it",
        "10 days",
    ),
    FeatureDefinition(
        "from_holiday",
        "Less($days_from_holiday, 10) / 10 - 0.5",
        "close to -0.5 just after a holiday, 0.5 ten or more days after it",
        "10 days",
    ),
)


@cache
def load_default_features() -> FeatureSet:
    """The default features; parsed once."""
    return FeatureSet(observed=_OBSERVED, known=_KNOWN)


@cache
def load_every_day_features() -> FeatureSet:
    """The default features of assets that trade every day of the week, which have no overnight gap; parsed once."""
    return FeatureSet(
        observed=tuple(feature for feature in _OBSERVED if feature.name != "gap"),
        known=(
            FeatureDefinition("weekday", "$weekday / 6 - 0.5", "Monday -0.5 to Sunday 0.5", "1"),
            *(feature for feature in _KNOWN if feature.name in {"to_month_end", "from_month_start"}),
        ),
    )
