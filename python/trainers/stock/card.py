"""Sections of the card, an artifact's record of its training, as JSON without times, paths or hosts."""

from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from math import isfinite

from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.card import UNADJUSTED
from predictor.features import FeatureSet
from trainers.stock.data import History
from trainers.stock.evaluation.comparison import SkillScore, mark_inside, winkler
from trainers.stock.evaluation.evaluation_set import CONFIDENCE, EvaluationSet, ModelForecasts, resampled_mean
from trainers.stock.evaluation.scores import ModelScores, ScoreRole, measure_below_by_level
from trainers.stock.feature_cache import hash_bars
from trainers.stock.splits import DataSplits

LIBRARIES = {
    "torch": "torch",
    "numpy": "numpy",
    "safetensors": "safetensors",
    "arch": "arch",
    "scikit-learn": "sklearn",
    "lightgbm": "lightgbm",
    "exchange-calendars": "exchange_calendars",
}
"""Module of each distribution that affects an artifact's weights, scores or calendar."""
NO_TEST = (
    "no score: every session was used for training, selection or calibration, so the skill is unknown; measure it on "
    "later days (`quantra evaluate`, `quantra compare`), or that of the recipe in a walk forward (`quantra backtest`)"
)
"""The note of a card without a test split."""


def encode_data(bars: BarPanel, warnings: Sequence[str], untrained_symbols: Sequence[str] = ()) -> dict[str, Json]:
    """The training's bars, symbols without a training window, and warnings about the bars."""
    adjustment = "adj_close" if bars.adj_close is not None else "split_ratio and cash_dividend"
    return {
        "symbols": list(bars.symbols),
        "untaught": list(untrained_symbols),
        "first_session": int(bars.sessions[0]),
        "last_session": int(bars.sessions[-1]),
        "sessions": len(bars.sessions),
        "sha256": hash_bars(bars),
        "adjustment": UNADJUSTED if bars.is_unadjusted else adjustment,
        "notes": list(warnings),
    }


def identify_features(features: FeatureSet) -> dict[str, Json]:
    """Names and expressions of a feature set in their order, on which the weights depend."""
    return {
        "observed": [[feature.name, feature.expression] for feature in features.observed],
        "known": [[feature.name, feature.expression] for feature in features.known],
    }


def encode_splits(splits: DataSplits, history: History) -> dict[str, Json]:
    """First and last session of each part's targets, and its number of windows."""
    return {
        part.name: {"first": part.first, "last": part.last, "windows": len(history.windows(part))}
        for part in splits.parts
    }


def list_libraries() -> dict[str, Json]:
    """Versions of installed libraries; they are recorded and never compared."""
    return {name: version(name) for name, module in LIBRARIES.items() if find_spec(module)}


def encode_scores(test: EvaluationSet, rows: Sequence[ModelScores], *, unit: str) -> dict[str, Json]:
    """Test losses of the model and the baselines, best first."""
    return {
        "unit": f"pinball loss of {unit}, x 10000",
        "split": "test",
        "horizons": list(test.horizons),
        "band": [test.levels[0], test.levels[-1]],
        "rows": [
            {
                "name": row.name,
                "is_model": row.role is ScoreRole.MODEL,
                **({} if row.fit is None else {"fit": row.fit.value}),
                "pinball": [10_000 * horizon.pinball.value for horizon in row.horizons],
                "mean": 10_000 * row.mean.value,
                "band_coverage": [horizon.band.value for horizon in row.horizons],
            }
            for row in sorted(rows, key=lambda row: row.mean.value)
        ],
    }


def encode_calibration(test: EvaluationSet, forecasts: ModelForecasts) -> dict[str, Json]:
    """Share of outcomes below each quantile, with block-bootstrap intervals."""
    shares = measure_below_by_level(test, forecasts.calibrated)
    return {
        "levels": list(test.levels),
        "horizons": list(test.horizons),
        "observed": [[share.value for share in row] for row in shares],
        "lower": [[share.lower for share in row] for row in shares],
        "upper": [[share.upper for share in row] for row in shares],
        "level": CONFIDENCE,
        "method": f"circular block bootstrap, blocks of {test.block} sessions",
    }


def encode_conformal(
    test: EvaluationSet, forecasts: ModelForecasts, effective_blocks: Sequence[float]
) -> dict[str, Json]:
    """Effective samples of the conformal offsets, and scores with and without them, one per horizon.

    `effective_blocks` are calibration days divided by the horizon, the number of outcomes that do not overlap.
    """
    card: dict[str, Json] = {"effective_samples": list(effective_blocks)}
    for when, values in (("before", forecasts.raw), ("after", forecasts.calibrated)):
        card[f"band_coverage_{when}"] = resampled_mean(test, mark_inside(test, values))[0].tolist()
        card[f"winkler_{when}"] = resampled_mean(test, winkler(test, values))[0].tolist()
    return card


def encode_skill(skill: SkillScore) -> dict[str, Json]:
    """Improvement over the best rival, with its interval."""
    return {
        "baseline": skill.baseline,
        "rivals": list(skill.rivals),
        "first_day": skill.first_day,
        "last_day": skill.last_day,
        "level": CONFIDENCE,
        "sentence": skill.sentence,
        "days_short": skill.days_short,
        "improvement": skill.improvement.value,
        "lower": skill.improvement.lower,
        "upper": skill.improvement.upper,
    }


def encode_epochs(epochs: Sequence[tuple[float, float]]) -> list[Json]:
    """Training and selection loss of every epoch in which both are finite, as JSON requires."""
    return [
        {"epoch": k + 1, "train": train, "selection": selection}
        for k, (train, selection) in enumerate(epochs)
        if isfinite(train) and isfinite(selection)
    ]
