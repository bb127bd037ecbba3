"""All that a model answers, as text that can be compared bit by bit; runs with the packages of either checkout.

python -m benchmarks.structure.answers ARTIFACT BARS [COVARIATES … STATIC]
"""

import enum
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import cast

import numpy as np

from predictor import BarPanel, Forecaster
from predictor.covariates import Covariates, CovariateSource

SESSIONS = 300
CLOCK = ("queue_ms", "compute_ms")
"""Fields that say how long it took."""


def facts(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Every number, text and array in a value, by where it stands.

    Raises:
        TypeError: There is something that this does not know how to compare.
    """
    match value:
        case Mapping():
            for name, part in cast("Mapping[object, object]", value).items():
                yield from facts(part, f"{path}[{name}]")
        case list() | tuple():
            for place, part in enumerate(cast("Sequence[object]", value)):
                yield from facts(part, f"{path}[{place}]")
        case _ if is_dataclass(value):
            for field in fields(value):
                if field.name not in CLOCK:
                    yield from facts(getattr(value, field.name), f"{path}.{field.name}")
        case _:
            yield path, _bits(value, path)


def _bits(value: object, path: str) -> str:
    match value:
        case np.ndarray():
            content = np.ascontiguousarray(value)
            bits = repr(content.tolist()).encode() if content.dtype == object else content.tobytes()
            return f"{content.dtype} {content.shape} {hashlib.sha256(bits).hexdigest()}"
        case float():
            return value.hex()
        case enum.Enum():
            return value.name
        case None | bool() | int() | str() | bytes():
            return repr(value)
        case _:
            raise TypeError(f"{path}: cannot compare a {type(value).__name__}; say here how")


def answers(forecaster: Forecaster, panel: BarPanel, files: CovariateSource | None) -> Iterator[tuple[str, object]]:
    """What it says of itself, its forecasts of one stock and of all, and the reasons of its first and last target."""
    model = forecaster.model()
    yield "model", model
    for bars in (panel, panel.select(panel.symbols[:1])):
        name, covariates = f"{len(bars.symbols)} symbols", _covariates(forecaster, bars, files)
        yield f"{name}: forecast", forecaster.predict(bars, covariates)
        for horizon, quantile in ((model.horizons[0], model.quantiles[0]), (model.horizons[-1], model.quantiles[-1])):
            reasons = forecaster.feature_importance(bars, horizon, quantile, covariates)
            yield f"{name}: reasons of {horizon} sessions, quantile {quantile}", reasons


def _covariates(forecaster: Forecaster, bars: BarPanel, files: CovariateSource | None) -> Covariates | None:
    return files.for_model(forecaster.model(), bars) if files else None


def main() -> int:
    """Print a JSON object of all facts."""
    artifact, bars, *beside = sys.argv[1:]
    panel = BarPanel.read(bars).last(SESSIONS)
    files = CovariateSource.read(beside[:-1], static=beside[-1]) if beside else None
    with Forecaster.load(Path(artifact), device="cpu") as forecaster:
        told = answers(forecaster, panel, files)
        print(json.dumps(dict(fact for name, value in told for fact in facts(value, name))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
