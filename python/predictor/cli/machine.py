"""What `--json` writes: the fields of the Python values, one object on one line, NaN as null."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from predictor import canonical
from predictor.canonical import Json
from predictor.catalog import ModelInfo
from predictor.errors import QuantraError, answer_of
from predictor.forecast import Attribution, Explanation, Forecast
from predictor.internals import Internal
from predictor.skill import Skill


def write_json(value: Json) -> None:
    """One line on standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


def forecast_json(forecast: Forecast) -> Json:
    """Arrays as nested lists [S][H][Q], of scores and ranks [S][H]."""
    return {
        "symbols": forecast.symbols,
        "as_of_session": forecast.as_of_session,
        "target_sessions": _list(forecast.target_sessions),
        "lag": forecast.lag,
        "base_session": forecast.base_session,
        "horizons": forecast.horizons,
        "quantiles": forecast.quantiles,
        "target_kind": forecast.target_kind,
        "values": _list(forecast.values),
        "returns": _list(forecast.returns),
        "prices": _list(forecast.prices),
        "anchor_price": _list(forecast.anchor_price),
        "model": forecast.model,
        "version": forecast.version,
        "weights_hash": forecast.weights_hash,
        "warnings": forecast.warnings,
        "forecast_id": forecast.forecast_id,
        "scores": _list(forecast.scores),
        "ranks": _list(forecast.ranks),
        "universe_hash": forecast.universe_hash,
        "refusals": {symbol: _facts(error) for symbol, error in forecast.refusals.items()},
        "skill": _skill_json(forecast.skill),
    }


def explanation_json(explanation: Explanation) -> Json:
    """One object a target."""
    return {"attributions": [_attribution_json(found) for found in explanation.attributions]}


def model_json(info: ModelInfo) -> dict[str, Json]:
    """The card as an object, not as text."""
    fields: dict[str, Json] = asdict(info)
    card = fields.pop("card_json")
    return {**fields, "card": canonical.from_bytes(str(card).encode(), "card")}


def error_json(error: QuantraError) -> Json:
    """The same facts that a server sends."""
    return {"error": _facts(error)}


def _facts(error: QuantraError) -> Json:
    answer = answer_of(error)
    return {
        "status": answer.status.value,
        "reason": answer.reason,
        "message": error.message,
        "metadata": error.metadata,
    }


def _skill_json(skill: Skill | None) -> Json:
    """Its fields and its verdict."""
    return None if skill is None else {**asdict(skill), "verdict": skill.verdict.value, "line": skill.line}


def _attribution_json(found: Attribution) -> Json:
    return {
        "symbols": found.symbols,
        "as_of_session": found.as_of_session,
        "horizon": found.horizon,
        "quantile": found.quantile,
        "method": found.method,
        "baseline": found.baseline,
        "unit": found.unit,
        "row_names": found.row_names,
        "row_kinds": [kind.value for kind in found.row_kinds],
        "per_row": _list(found.per_row),
        "sessions": _list(found.sessions),
        "prediction": _list(found.prediction),
        "baseline_prediction": _list(found.baseline_prediction),
        "relative_gap": _list(found.relative_gap),
        "converged": _list(found.converged),
        "nodes": _list(found.nodes),
        "model": found.model,
        "version": found.version,
        "weights_hash": found.weights_hash,
        "warnings": found.warnings,
        "internals": [_internal_json(one) for one in found.internals],
        "skill": _skill_json(found.skill),
    }


def _internal_json(one: Internal) -> Json:
    return {"name": one.name, "axis": one.axis.value, "labels": one.labels, "values": _list(one.values)}


def _list(array: NDArray[np.generic] | None) -> Json:
    return None if array is None else _finite(array.tolist())


def _finite(value: Json) -> Json:
    """The same nested lists with None where a number is not finite, which JSON cannot say."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return value
