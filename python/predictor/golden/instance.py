"""Recording and checking of the golden instance of a model or an ensemble.

An ensemble has those of its members, and one for the joint forecast.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from predictor.artifact import MEMBERS, Golden, StoredEnsemble, inside
from predictor.artifact.manifest import GOLDEN_TEXT
from predictor.bars import BarPanel
from predictor.canonical import Json, Record
from predictor.covariates import Covariates
from predictor.errors import ArtifactError, QuantraError, answer_of
from predictor.golden.bars import (
    COLUMNS,
    arrays_of,
    categories_of,
    columns_of,
    panel,
    stored_covariates,
    synthetic_bars,
    synthetic_covariates,
)
from predictor.golden.stages import (
    LONG_AFTER,
    MOST_FLOAT32_ERROR,
    GoldenRequest,
    StageComparison,
    Stages,
    compute_stages,
    forecast_stages,
    golden_error,
    golden_request,
    prepare,
    units_in_float64,
)
from predictor.instance import Instance
from predictor.model import Ensemble, Model

Arrays = Mapping[str, NDArray[np.generic]]


def record(model: Model) -> Golden:
    """Record the golden instance of a model with the numbers that it computes now."""
    request = golden_request(model)
    stages, exact = compute_stages(model, request), units_in_float64(model, request)
    text: dict[str, Json] = {
        "symbols": list(request.bars.symbols),
        "categories": categories_of(request.covariates),
        "float32_error": float(np.abs(exact - stages["units"].astype(np.float64)).max()),
        "refusals": {name: _refusal(model, request, spoil) for name, spoil in REFUSALS.items()},
    }
    arrays: dict[str, NDArray[np.generic]] = {"bars.sessions": request.bars.sessions, "stage.units_float64": exact}
    arrays |= {f"bars.{name}": column for name, column in columns_of(request.bars).items()}
    arrays |= arrays_of(request.covariates)
    arrays |= {f"stage.{name}": values for name, values in stages.items()}
    return Golden(text=text, arrays=arrays)


def check(model: Model, golden: Golden) -> None:
    """Check a model against its golden instance.

    Raises:
        ArtifactError: a stage differs by more than its tolerance, or an invalid input does not get the recorded
            error. The message names the file and the stage.
    """
    facts = _facts(golden)
    try:
        request = GoldenRequest(stored_bars(facts.symbols, golden.arrays), facts.covariates)
        stages = compute_stages(model, request)
    except ArtifactError:
        raise
    except QuantraError as error:
        raise golden_error(f"is rejected: {error.message}") from error
    comparison = StageComparison(
        slack=slack(model, golden),
        scale=model.pipeline.features.scaling.scale,
    )
    for name, values in stages.items():
        comparison.check(name, values, stored_array(golden.arrays, f"stage.{name}"))
    for name, spoil in REFUSALS.items():
        reason, recorded = _refusal(model, request, spoil), facts.refusals.get(name)
        if reason != recorded:
            problem = f"golden instance: {name} gives {reason!r}, recorded was {recorded!r}"
            raise ArtifactError.of(GOLDEN_TEXT, problem)


def slack(model: Model, golden: Golden) -> float:
    """Tolerated relative error of the network's arithmetic in the stages after it."""
    return max(min(4 * _facts(golden).float32_error, MOST_FLOAT32_ERROR), model.engine.relative_error)


def _one_bar_too_few(model: Model, request: GoldenRequest) -> GoldenRequest:
    count = max(1, model.pipeline.least_bars - 1)
    return GoldenRequest(request.bars.last(count), request.covariates.last(count))


def _high_below_low(_model: Model, request: GoldenRequest) -> GoldenRequest:
    high = request.bars.high.copy()
    high[1, -1] = request.bars.low[1, -1] / 2
    return GoldenRequest(replace(request.bars, high=high), request.covariates)


def _a_strange_covariate(_model: Model, request: GoldenRequest) -> GoldenRequest:
    texts = ("",) * len(request.bars.symbols)
    return GoldenRequest(request.bars, replace(request.covariates, categories={"no such covariate": texts}))


def _no_covariates(_model: Model, request: GoldenRequest) -> GoldenRequest:
    return GoldenRequest(request.bars, Covariates())


REFUSALS: Final[Mapping[str, Callable[[Model, GoldenRequest], GoldenRequest]]] = {
    "one bar too few": _one_bar_too_few,
    "high below low": _high_below_low,
    "a strange covariate": _a_strange_covariate,
    "no covariates": _no_covariates,
}
"""Functions that make the request invalid, by the name under which the reason of the error is recorded. The reason is
empty if the request stays valid, as without covariates for a model that reads none."""


def _refusal(model: Model, request: GoldenRequest, spoil: Callable[[Model, GoldenRequest], GoldenRequest]) -> str:
    """Reason of the error of an invalid request; empty without an error."""
    try:
        prepare(model, spoil(model, request))
    except QuantraError as error:
        return answer_of(error).reason
    return ""


class _Facts(NamedTuple):
    """Facts of the golden instance."""

    symbols: tuple[str, ...]
    covariates: Covariates
    float32_error: float
    refusals: Mapping[str, str]


def _facts(golden: Golden) -> _Facts:
    text = Record(golden.text, GOLDEN_TEXT)
    recorded = text.record("refusals")
    facts = _Facts(
        symbols=text.texts("symbols"),
        covariates=stored_covariates(text.record("categories"), golden.arrays),
        float32_error=text.number("float32_error"),
        refusals={name: recorded.text(name) for name in recorded.keys()},  # noqa: SIM118 - a Record is no dict
    )
    text.end()
    return facts


def stored_bars(symbols: tuple[str, ...], arrays: Arrays) -> BarPanel:
    """Restore the bars from sessions [T] and columns [S, T]."""
    columns = {name: stored_array(arrays, f"bars.{name}").astype(np.float64) for name in COLUMNS}
    return panel(symbols, stored_array(arrays, "bars.sessions").astype(np.int32), columns)


def stored_array(arrays: Arrays, name: str) -> NDArray[np.generic]:
    """An array of the golden instance in its recorded shape; raises ArtifactError if it is missing."""
    if name not in arrays:
        raise golden_error(f"array {name!r} is missing")
    return arrays[name]


def record_ensemble(ensemble: Ensemble) -> Golden:
    """Record the golden instance of an ensemble; its members have their own."""
    request = _joint_request(ensemble)
    arrays: Stages = {"bars.sessions": request.bars.sessions}
    arrays |= {f"bars.{name}": column for name, column in columns_of(request.bars).items()}
    arrays |= arrays_of(request.covariates)
    arrays |= {f"stage.{name}": values for name, values in _joint_stages(ensemble, request).items()}
    text: dict[str, Json] = {"symbols": list(request.bars.symbols), "categories": categories_of(request.covariates)}
    return Golden(text=text, arrays=arrays)


def check_ensemble(ensemble: Ensemble, stored: StoredEnsemble) -> None:
    """Check every member against its golden instance, then the ensemble against its own.

    Raises:
        ArtifactError: as for `check`; the message names the member, the file and the stage.
    """
    for name, member in ensemble.members.items():
        try:
            check(member, stored.members[name].golden)
        except ArtifactError as error:
            raise inside(f"{MEMBERS}/{name}", error) from error
    members = ((member, stored.members[name].golden) for name, member in ensemble.members.items())
    _check_own(ensemble, stored.golden, max(slack(member, golden) for member, golden in members))


def _check_own(ensemble: Ensemble, golden: Golden, forgiven: float) -> None:
    text = Record(golden.text, GOLDEN_TEXT)
    symbols, covariates = text.texts("symbols"), stored_covariates(text.record("categories"), golden.arrays)
    text.end()
    try:
        stages = _joint_stages(ensemble, GoldenRequest(stored_bars(symbols, golden.arrays), covariates))
    except ArtifactError:
        raise
    except QuantraError as error:
        raise golden_error(f"is rejected: {error.message}") from error
    comparison = StageComparison(slack=forgiven, scale=np.ones(0))
    for name, values in stages.items():
        comparison.check(name, values, stored_array(golden.arrays, f"stage.{name}"))


def _joint_request(ensemble: Ensemble) -> GoldenRequest:
    """The request on the last sessions whose horizons every member's calendar covers."""
    pipelines = [member.pipeline for member in ensemble.members.values()]
    bars = synthetic_bars(pipelines)
    future = min(pipelines, key=lambda pipeline: pipeline.calendar.last).following(int(bars.sessions[-1]))
    return GoldenRequest(bars, synthetic_covariates(ensemble.covariates, bars, future))


def _joint_stages(ensemble: Ensemble, request: GoldenRequest) -> Stages:
    instance = Instance(
        input=request.bars, covariates=request.covariates, allow_incomplete_last_bar=True, accept_suspect_bars=True
    )
    return forecast_stages(ensemble.forecast([ensemble.prepare(instance, LONG_AFTER)])[0])
