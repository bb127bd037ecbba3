"""Global feature importance: means by hand, and failing instances or symbols among good ones."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from artifacts import recent_bars, small_artifact, small_model
from canned_service import attribution

from predictor.bars import BarPanel
from predictor.call_context import NEVER, CallContext
from predictor.errors import (
    BarsError,
    CallCancelledError,
    ExplainUnsupportedError,
    InvalidInputError,
    MalformedRequestError,
    NoUsableSymbolError,
    QuantraError,
    TooFewBarsError,
    UnknownHorizonError,
)
from predictor.forecast import Attribution, RowKind, TargetPoint
from predictor.global_importance import MAX_REFUSALS, GlobalExplanationQuery, GlobalImportance, ImportanceTally
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import ExplanationQuery, Instance, InstanceOrError
from predictor.model import Model, explain_each

NAN = float("nan")
POINT, OTHER = TargetPoint(5, 0.9), TargetPoint(1, 0.5)


@pytest.fixture(scope="module")
def model() -> Model:
    return small_model(small_artifact())


def tally(total: int = 2) -> ImportanceTally:
    return ImportanceTally(total, model="small", version=3, weights_hash="0" * 64)


def told(*rows: Sequence[float], converged: bool = True, horizon: int = 5) -> Attribution:
    """Reports of two inputs, one row per symbol; a row of NaN is a symbol without a forecast."""
    symbols = tuple("ABCDEFGHIJKL"[: len(rows)])
    per_row = np.array(rows, np.float64)
    refused = np.isnan(per_row[:, 0])
    return replace(
        attribution(symbols),
        horizon=horizon,
        row_names=("return_1", "scale"),
        row_kinds=(RowKind.OBSERVED, RowKind.SCALE),
        per_row=per_row,
        prediction=np.where(refused, np.nan, 0.5),
        converged=~refused & converged,
        refusals={symbol: BarsError(f"{symbol} is bad") for symbol, bad in zip(symbols, refused, strict=True) if bad},
    )


# --- numbers by hand


def test_sizes_are_means_over_all_symbols_of_all_instances() -> None:
    tested = tally()
    tested.add([told((1.0, -2.0), (3.0, 0.0))])
    tested.add([told((-5.0, 4.0))])
    (found,) = tested.report().targets
    assert found.mean_size.tolist() == [3.0, 2.0]
    assert (found.windows, found.horizon, found.quantile, found.unit) == (3, 5, 0.5, "log return")
    assert (found.row_names, found.row_kinds) == (("return_1", "scale"), (RowKind.OBSERVED, RowKind.SCALE))


def test_the_standard_error_is_that_of_a_ratio_over_instances() -> None:
    tested = tally()
    tested.add([told((1.0, -2.0), (3.0, 0.0))])
    assert np.isnan(tested.report().targets[0].standard_error).all()
    tested.add([told((-5.0, 4.0))])
    # Sums less mean x windows are -2 and 2 for both inputs: sqrt(2/1 x 8) / 3.
    np.testing.assert_allclose(tested.report().targets[0].standard_error, [4 / 3, 4 / 3], rtol=1e-12)


def test_the_standard_error_of_instances_of_one_symbol_is_the_usual_one() -> None:
    source = np.random.default_rng(3)
    sizes = source.exponential(size=(50, 2))
    tested = tally(50)
    for row in sizes:
        tested.add([told(tuple(row))])
    expected = sizes.std(axis=0, ddof=1) / np.sqrt(50)
    np.testing.assert_allclose(tested.report().targets[0].standard_error, expected, rtol=1e-9)


def test_instances_that_say_the_same_have_no_standard_error() -> None:
    tested = tally(3)
    for _ in range(3):
        tested.add([told((0.1, 0.7), (0.2, -0.3))])
    np.testing.assert_allclose(tested.report().targets[0].standard_error, 0, atol=1e-8)


def test_a_refused_symbol_is_left_out_and_reported() -> None:
    tested = tally()
    tested.add([told((1.0, -2.0), (NAN, NAN), (3.0, 0.0))])
    found = tested.report()
    assert found.targets[0].mean_size.tolist() == [2.0, 1.0]
    assert (found.targets[0].windows, found.refused, found.refused_symbols) == (2, 0, 1)
    assert [(one.place, one.symbol, one.error.message) for one in found.refusals] == [(0, "B", "B is bad")]


def test_each_target_has_its_own_means_and_share_that_converged() -> None:
    tested = tally()
    tested.add([told((1.0, 0.0)), told((7.0, 0.0), horizon=1)])
    tested.add([told((1.0, 0.0)), told((9.0, 0.0), horizon=1, converged=False)])
    one, other = tested.report().targets
    assert (one.horizon, one.mean_size.tolist(), one.converged_share) == (5, [1.0, 0.0], 1.0)
    assert (other.horizon, other.mean_size.tolist(), other.converged_share) == (1, [8.0, 0.0], 0.5)


def test_refused_instances_are_counted_and_the_first_is_reported() -> None:
    tested = tally(30)
    tested.refuse(BarsError("bad"))
    empty = tested.report()
    assert (empty.targets, empty.done, empty.total, empty.refused) == ((), 1, 30, 1)
    for _ in range(2 * MAX_REFUSALS):
        tested.refuse(BarsError("bad too"))
    full = tested.report()
    assert (full.done, full.refused, len(full.refusals)) == (21, 21, MAX_REFUSALS)
    assert [one.place for one in full.refusals] == list(range(MAX_REFUSALS))
    assert len(empty.refusals) == 1


# --- of a model


def test_one_report_comes_after_each_instance_over_all_so_far(model: Model) -> None:
    panels = [recent_bars("AAPL", "IBM"), recent_bars("MSFT")]
    found = reports(model, *panels, targets=(POINT, OTHER, POINT))
    assert [(one.done, one.total) for one in found] == [(1, 2), (2, 2)]
    assert (found[0].model, found[0].version, found[0].weights_hash) == (
        model.identity.name,
        model.identity.version,
        model.identity.weights_hash,
    )
    alone = [
        model.explain(ExplanationQuery(instance=Instance(input=bars), targets=(POINT,)), AFTER_ALL_SESSIONS, NEVER)[0]
        for bars in panels
    ]
    sizes = np.abs(np.concatenate([one.per_row for one in alone]))
    assert [(one.horizon, one.quantile) for one in found[1].targets] == [POINT, OTHER, POINT]
    for one in (found[1].targets[0], found[1].targets[2]):
        np.testing.assert_allclose(one.mean_size, sizes.mean(axis=0), rtol=1e-12)
        assert (one.row_names, one.windows, one.converged_share) == (alone[0].row_names, 3, 1.0)


def test_no_target_means_every_horizon_at_the_median(model: Model) -> None:
    (found,) = reports(model, recent_bars("AAPL"))
    assert [(one.horizon, one.quantile) for one in found.targets] == list(model.default_targets())


def test_bad_instances_among_good_ones_fail_alone(model: Model) -> None:
    good = recent_bars("AAPL")
    found = reports(model, good, good.last(3), MalformedRequestError("unreadable"), good, targets=(POINT,))[-1]
    assert (found.done, found.refused, found.targets[0].windows) == (4, 2, 2)
    assert [(one.place, one.symbol, type(one.error)) for one in found.refusals] == [
        (1, "", TooFewBarsError),
        (2, "", MalformedRequestError),
    ]
    np.testing.assert_array_equal(
        found.targets[0].mean_size, reports(model, good, targets=(POINT,))[0].targets[0].mean_size
    )


def test_a_symbol_that_cannot_be_forecast_is_reported_with_its_reason(model: Model) -> None:
    bars = recent_bars("AAPL", "IBM")
    fields = {name: getattr(bars, name).copy() for name in ("open", "high", "low", "close", "volume", "adj_close")}
    for values in fields.values():
        values[1, -1] = np.nan
    (found,) = reports(model, replace(bars, **fields), targets=(POINT,))
    assert (found.refused, found.refused_symbols, found.targets[0].windows) == (0, 1, 1)
    (refusal,) = found.refusals
    assert (refusal.place, refusal.symbol, type(refusal.error)) == (0, "IBM", NoUsableSymbolError)


def test_what_every_instance_would_fail_at_is_an_error(model: Model) -> None:
    good = recent_bars("AAPL")
    with pytest.raises(UnknownHorizonError):
        reports(model, good, targets=(TargetPoint(7, 0.5),))
    with pytest.raises(InvalidInputError, match="tolerance is"):
        reports(model, good, tolerance=1e-9)
    with pytest.raises(ExplainUnsupportedError):
        reports(model, good, method="shap")
    with pytest.raises(InvalidInputError, match="no instance"):
        reports(model)


def test_a_cancelled_call_ends_before_the_next_instance(model: Model) -> None:
    gone = CallContext()
    query = GlobalExplanationQuery(instances=(Instance(input=recent_bars("AAPL")),) * 2, targets=(POINT,))
    found = explain_each(model, query, AFTER_ALL_SESSIONS, gone)
    assert next(found).done == 1
    gone.cancel()
    with pytest.raises(CallCancelledError):
        next(found)


def reports(
    model: Model,
    *asked: BarPanel | QuantraError,
    targets: tuple[TargetPoint, ...] = (),
    tolerance: float = 0.01,
    method: str = "integrated-gradients",
) -> list[GlobalImportance]:
    instances: tuple[InstanceOrError, ...] = tuple(
        one if isinstance(one, QuantraError) else Instance(input=one) for one in asked
    )
    query = GlobalExplanationQuery(instances=instances, targets=targets, tolerance=tolerance, method=method)
    return list(explain_each(model, query, AFTER_ALL_SESSIONS, NEVER))
