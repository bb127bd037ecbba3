"""Recording and checking of the golden instance of a model or an ensemble.

An ensemble has those of its members, and one for the joint forecast.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from predictor.artifact import MEMBERS, Golden, StoredEnsemble, prefix_error_path
from predictor.artifact.manifest import GOLDEN_TEXT
from predictor.canonical import Json, Record
from predictor.covariates import Covariates
from predictor.errors import ArtifactError, QuantraError, get_error_status
from predictor.golden.bars import (
    COLUMNS,
    Arrays,
    build_panel,
    list_bar_columns,
    list_covariate_arrays,
    make_synthetic_bars,
    make_synthetic_covariates,
    restore_covariates,
)
from predictor.golden.stages import (
    AFTER_ALL_SESSIONS,
    MAX_FLOAT32_ERROR,
    GoldenRequest,
    StageComparison,
    Stages,
    build_request,
    compute_stages,
    list_forecast_stages,
    make_golden_error,
    prepare,
)
from predictor.instance import Instance
from predictor.model import Ensemble, Model


def record(model: Model) -> Golden:
    """Record the golden instance of a model with the numbers that it computes now."""
    request = build_request(model)
    stages, exact = compute_stages(model, request), model.compute_units_in_float64(prepare(model, request)).numpy()
    facts: dict[str, Json] = {
        "float32_error": float(np.abs(exact - stages["units"].astype(np.float64)).max()),
        "refusals": {name: _record_refusal(model, request, spoil) for name, spoil in REFUSALS.items()},
    }
    return _record(request, {"units_float64": exact, **stages}, facts)


def _record(request: GoldenRequest, stages: Stages, facts: Mapping[str, Json]) -> Golden:
    text: dict[str, Json] = {
        "symbols": list(request.bars.symbols),
        "categories": {name: list(texts) for name, texts in request.covariates.categories.items()},
        **facts,
    }
    arrays: Stages = {"bars.sessions": request.bars.sessions}
    arrays |= {f"bars.{name}": column for name, column in list_bar_columns(request.bars).items()}
    arrays |= list_covariate_arrays(request.covariates)
    arrays |= {f"stage.{name}": values for name, values in stages.items()}
    return Golden(text=text, arrays=arrays)


def check(model: Model, golden: Golden) -> None:
    """Check a model against its golden instance.

    Raises:
        ArtifactError: a stage differs by more than its tolerance, or an invalid input does not get the recorded
            error. The message names the file and the stage.
    """
    facts = _read_facts(golden)
    comparison = StageComparison(slack=compute_slack(model, golden), scale=model.pipeline.features.scaling.scale)
    request = _check_stages(golden, facts.symbols, facts.covariates, comparison, partial(compute_stages, model))
    for name, spoil in REFUSALS.items():
        reason, recorded = _record_refusal(model, request, spoil), facts.refusals.get(name)
        if reason != recorded:
            problem = f"golden instance: {name} gives {reason!r}, recorded was {recorded!r}"
            raise ArtifactError.of(GOLDEN_TEXT, problem)


def _check_stages(
    golden: Golden,
    symbols: tuple[str, ...],
    covariates: Covariates,
    comparison: StageComparison,
    compute: Callable[[GoldenRequest], Stages],
) -> GoldenRequest:
    """Compare the stages of the stored request with the recorded ones, and return the request."""
    try:
        columns = {name: _get_array(golden.arrays, f"bars.{name}").astype(np.float64) for name in COLUMNS}
        sessions = _get_array(golden.arrays, "bars.sessions").astype(np.int32)
        request = GoldenRequest(build_panel(symbols, sessions, columns), covariates)
        stages = compute(request)
    except ArtifactError:
        raise
    except QuantraError as error:
        raise make_golden_error(f"is rejected: {error.message}") from error
    for name, values in stages.items():
        comparison.check(name, values, _get_array(golden.arrays, f"stage.{name}"))
    return request


def compute_slack(model: Model, golden: Golden) -> float:
    """Tolerated relative error of the network's arithmetic in the stages after it."""
    return max(min(4 * _read_facts(golden).float32_error, MAX_FLOAT32_ERROR), model.engine.relative_error)


def _drop_bars(model: Model, request: GoldenRequest) -> GoldenRequest:
    count = max(1, model.pipeline.least_bars - 1)
    return GoldenRequest(request.bars.last(count), request.covariates.last(count))


def _put_high_below_low(_model: Model, request: GoldenRequest) -> GoldenRequest:
    high = request.bars.high.copy()
    high[1, -1] = request.bars.low[1, -1] / 2
    return GoldenRequest(replace(request.bars, high=high), request.covariates)


def _add_unknown_covariate(_model: Model, request: GoldenRequest) -> GoldenRequest:
    texts = ("",) * len(request.bars.symbols)
    return GoldenRequest(request.bars, replace(request.covariates, categories={"no such covariate": texts}))


def _drop_covariates(_model: Model, request: GoldenRequest) -> GoldenRequest:
    return GoldenRequest(request.bars, Covariates())


REFUSALS: Final[Mapping[str, Callable[[Model, GoldenRequest], GoldenRequest]]] = {
    "one bar too few": _drop_bars,
    "high below low": _put_high_below_low,
    "a strange covariate": _add_unknown_covariate,
    "no covariates": _drop_covariates,
}
"""Functions that make the request invalid, by the name under which the reason of the error is recorded. The reason is
empty if the request stays valid, as without covariates for a model that reads none."""


def _record_refusal(
    model: Model, request: GoldenRequest, spoil: Callable[[Model, GoldenRequest], GoldenRequest]
) -> str:
    """Reason of the error of an invalid request; empty without an error."""
    try:
        prepare(model, spoil(model, request))
    except QuantraError as error:
        return get_error_status(error).reason
    return ""


class _Facts(NamedTuple):
    """The recorded text of a golden instance."""

    symbols: tuple[str, ...]
    covariates: Covariates
    float32_error: float
    refusals: Mapping[str, str]


def _read_facts(golden: Golden) -> _Facts:
    text = Record(golden.text, GOLDEN_TEXT)
    recorded = text.record("refusals")
    facts = _Facts(
        symbols=text.texts("symbols"),
        covariates=restore_covariates(text.record("categories"), golden.arrays),
        float32_error=text.number("float32_error"),
        refusals={name: recorded.text(name) for name in recorded.keys()},  # noqa: SIM118 - a Record is not a dict
    )
    text.end()
    return facts


def _get_array(arrays: Arrays, name: str) -> NDArray[np.generic]:
    if name not in arrays:
        raise make_golden_error(f"array {name!r} is missing")
    return arrays[name]


def record_ensemble(ensemble: Ensemble) -> Golden:
    """Record the golden instance of an ensemble; its members have their own."""
    pipelines = [member.pipeline for member in ensemble.members.values()]
    bars = make_synthetic_bars(pipelines)
    # the last sessions whose horizons every member's calendar covers
    future = min(pipelines, key=lambda pipeline: pipeline.calendar.last).following(int(bars.sessions[-1]))
    request = GoldenRequest(bars, make_synthetic_covariates(ensemble.covariates, bars, future))
    return _record(request, _compute_joint_stages(ensemble, request), {})


def check_ensemble(ensemble: Ensemble, stored_ensemble: StoredEnsemble) -> None:
    """Check every member against its golden instance, then the ensemble against its own.

    Raises:
        ArtifactError: as for `check`; the message names the member, the file and the stage.
    """
    for name, member in ensemble.members.items():
        try:
            check(member, stored_ensemble.members[name].golden)
        except ArtifactError as error:
            raise prefix_error_path(f"{MEMBERS}/{name}", error) from error
    members = ((member, stored_ensemble.members[name].golden) for name, member in ensemble.members.items())
    slack = max(compute_slack(member, golden) for member, golden in members)
    text = Record(stored_ensemble.golden.text, GOLDEN_TEXT)
    symbols, categories = text.texts("symbols"), text.record("categories")
    text.end()
    covariates = restore_covariates(categories, stored_ensemble.golden.arrays)
    comparison = StageComparison(slack=slack, scale=np.ones(0))
    _check_stages(stored_ensemble.golden, symbols, covariates, comparison, partial(_compute_joint_stages, ensemble))


def _compute_joint_stages(ensemble: Ensemble, request: GoldenRequest) -> Stages:
    instance = Instance(
        input=request.bars, covariates=request.covariates, allow_incomplete_last_bar=True, accept_suspect_bars=True
    )
    return list_forecast_stages(ensemble.forecast([ensemble.prepare(instance, AFTER_ALL_SESSIONS)])[0])
