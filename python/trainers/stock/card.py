"""The card: what an artifact tells of its own making. Plain JSON; no time, duration, path or host."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.canonical import Json
from trainers.stock.data import History
from trainers.stock.scores import LEVEL, Judged, Skill, below, overall, pinball, resampled_mean
from trainers.stock.splits import Splits

FloatArray = NDArray[np.float64]

LIBRARIES = ("torch", "numpy", "safetensors", "arch", "exchange-calendars")
"""Those whose numbers are in an artifact: in its weights, its scores or its calendar."""
FIELDS = ("open", "high", "low", "close", "volume", "adj_close", "split_ratio", "cash_dividend")


def data_card(bars: BarPanel) -> dict[str, Json]:
    """Which bars the model saw."""
    actions = bars.split_ratio is not None or bars.cash_dividend is not None
    adjustment = "adj_close" if bars.adj_close is not None else "split_ratio and cash_dividend" if actions else "none"
    return {
        "symbols": list(bars.symbols),
        "first_session": int(bars.sessions[0]),
        "last_session": int(bars.sessions[-1]),
        "sessions": len(bars.sessions),
        "sha256": bars_hash(bars),
        "adjustment": adjustment,
        "notes": [str(jump) for jump in bars.suspicious_jumps()],
    }


def bars_hash(bars: BarPanel) -> str:
    """SHA-256 over symbols, sessions and every column."""
    digest = hashlib.sha256("\0".join(bars.symbols).encode())
    digest.update(np.ascontiguousarray(bars.sessions).data)
    for name in FIELDS:
        column: FloatArray | None = getattr(bars, name)
        digest.update(name.encode())
        if column is not None:
            digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()


def splits_card(splits: Splits, history: History) -> dict[str, Json]:
    """Which days each part's targets may touch, and how many windows that gives."""
    return {
        part.name: {"first": part.first, "last": part.last, "windows": len(history.windows(part))}
        for part in splits.parts
    }


def libraries_card() -> dict[str, Json]:
    """Versions of those that are installed, for people: they are recorded and never compared."""
    return {name: version(name) for name in LIBRARIES if find_spec(name.replace("-", "_"))}


def scores_card(judged: Judged, forecasts: Mapping[str, FloatArray], *, model: str, unit: str) -> dict[str, Json]:
    """Held-out losses of the model and of the baselines, best first."""
    rows: list[tuple[float, dict[str, Json]]] = []
    for name, forecast in forecasts.items():
        losses = 10_000 * pinball(judged, forecast)
        mean = float(np.nanmean(overall(judged, losses)))
        by_horizon = [float(value) for value in np.nanmean(losses, axis=0)]
        share_below = np.nanmean(below(judged, forecast), axis=0)
        band = [float(row[-1] - row[0]) for row in share_below]
        row: dict[str, Json] = {"name": name, "is_model": name == model, "pinball": by_horizon, "mean": mean}
        rows.append((mean, row | {"band_coverage": band}))
    return {
        "unit": f"pinball loss of {unit}, x 10000",
        "split": "test",
        "horizons": list(judged.horizons),
        "band": [judged.levels[0], judged.levels[-1]],
        "rows": [row for _, row in sorted(rows, key=lambda pair: pair[0])],
    }


def calibration_card(judged: Judged, forecast: FloatArray) -> dict[str, Json]:
    """How often outcomes fell below each quantile, with block-bootstrap intervals."""
    observed, resamples = resampled_mean(judged, below(judged, forecast))
    lower, upper = np.quantile(resamples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return {
        "levels": list(judged.levels),
        "horizons": list(judged.horizons),
        "observed": observed.tolist(),
        "lower": lower.tolist(),
        "upper": upper.tolist(),
        "level": LEVEL,
        "method": f"circular block bootstrap, blocks of {judged.block} sessions",
    }


def skill_card(found: Skill) -> dict[str, Json]:
    """Whether the model beats the best baseline, with the uncertainty."""
    told: dict[str, Json] = {"sentence": found.sentence, "days_short": found.days_short}
    return {"baseline": found.baseline, "level": LEVEL, **told, **_improvement(found)}


def epochs_card(epochs: Sequence[tuple[float, float]]) -> list[Json]:
    """Training and selection loss of every epoch."""
    return [{"epoch": k + 1, "train": train, "selection": selection} for k, (train, selection) in enumerate(epochs)]


def _improvement(found: Skill) -> dict[str, Json]:
    values = asdict(found.improvement)
    return {"improvement": values["value"], "lower": values["lower"], "upper": values["upper"]}
