"""Global importance on the wire: round trips of requests and reports."""

import contextlib
from dataclasses import fields, replace

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from market import bokeh_panel

from predictor._pb import prediction_pb2 as pb
from predictor.errors import BarsError, ExplainUnsupportedError, MalformedRequestError, RequestTooLargeError
from predictor.forecast import RowKind, TargetPoint
from predictor.global_importance import GlobalExplanationQuery, GlobalImportance, Refusal, TargetImportance
from predictor.instance import Instance
from predictor.wire import global_importance, limits

QUERY = GlobalExplanationQuery(
    instances=(
        Instance(input=bokeh_panel("AAPL").last(3), request_id="3"),
        Instance(input=bokeh_panel("AAPL", "IBM").last(3), request_id="4"),
    ),
    targets=(TargetPoint(5, 0.9), TargetPoint(1, 0.5)),
    tolerance=0.05,
)
TARGET = TargetImportance(
    horizon=5,
    quantile=0.9,
    unit="log return",
    row_names=("return_1", "scale"),
    row_kinds=(RowKind.OBSERVED, RowKind.SCALE),
    mean_size=np.array([1 / 3, 0.5]),
    standard_error=np.array([np.nan, 1 / 7]),
    windows=12,
    converged_share=11 / 12,
)
REPORT = GlobalImportance(
    model="small",
    version=3,
    weights_hash="0" * 64,
    targets=(TARGET, replace(TARGET, horizon=1)),
    done=5,
    total=9,
    refused=1,
    refused_symbols=1,
    refusals=(Refusal(0, "", BarsError("bad")), Refusal(2, "IBM", BarsError("worse", metadata={"session": "1"}))),
)

BODY = global_importance.encode(REPORT).SerializeToString()


def test_a_question_comes_back() -> None:
    message = global_importance.encode_query(QUERY, "small")
    got = global_importance.decode_query(message)
    assert message.model == "small"
    assert (got.targets, got.method, got.tolerance) == (QUERY.targets, QUERY.method, QUERY.tolerance)
    assert [(one.request_id, len(one.input.symbols)) for one in read(got)] == [("3", 1), ("4", 2)]


def test_an_instance_that_cannot_be_read_is_its_error_among_the_others() -> None:
    message = global_importance.encode_query(QUERY, "small")
    message.instances.insert(1, pb.Instance())
    got = global_importance.decode_query(message)
    assert [type(one) for one in got.instances] == [Instance, MalformedRequestError, Instance]


def test_an_error_among_the_instances_is_not_sent() -> None:
    with pytest.raises(BarsError, match="bad"):
        global_importance.encode_query(GlobalExplanationQuery(instances=(*QUERY.instances, BarsError("bad"))), "small")


def test_a_question_without_tolerance_has_the_usual_one() -> None:
    assert global_importance.decode_query(pb.ExplainGlobalRequest()).tolerance == 0.01


@pytest.mark.parametrize("tolerance", [-0.1, 9.9e-5, 1.0, float("nan")])
def test_a_tolerance_that_no_gap_can_meet_is_refused(tolerance: float) -> None:
    with pytest.raises(MalformedRequestError, match=r"tolerance: .* from 0\.0001 to below 1"):
        global_importance.decode_query(pb.ExplainGlobalRequest(tolerance=tolerance))


def test_more_instances_or_targets_than_a_request_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    message = global_importance.encode_query(QUERY, "small")
    monkeypatch.setattr("predictor.wire.global_importance.MAX_INSTANCES", 1)
    with pytest.raises(RequestTooLargeError, match="instances: have 2, at most 1"):
        global_importance.decode_query(message)
    many = pb.ExplainGlobalRequest(targets=[pb.ExplainTarget()] * (limits.MAX_TARGETS + 1))
    with pytest.raises(RequestTooLargeError, match="targets"):
        global_importance.decode_query(many)


def test_an_unknown_method_is_refused_both_ways() -> None:
    with pytest.raises(ExplainUnsupportedError):
        global_importance.encode_query(replace(QUERY, method="shap"), "small")
    unknown = pb.ExplainGlobalRequest(method=99)  # pyright: ignore[reportArgumentType] - a newer client
    with pytest.raises(ExplainUnsupportedError):
        global_importance.decode_query(unknown)


def test_a_report_comes_back_bit_for_bit() -> None:
    got = global_importance.decode(global_importance.encode(REPORT))
    assert (got.model, got.version, got.weights_hash) == (REPORT.model, REPORT.version, REPORT.weights_hash)
    assert (got.done, got.total, got.refused, got.refused_symbols) == (5, 9, 1, 1)
    assert [of_target(one) for one in got.targets] == [of_target(one) for one in REPORT.targets]
    assert [of_refusal(one) for one in got.refusals] == [of_refusal(one) for one in REPORT.refusals]


def test_a_report_before_any_explanation_has_no_target() -> None:
    got = global_importance.decode(global_importance.encode(replace(REPORT, targets=(), refusals=())))
    assert (got.targets, got.refusals) == ((), ())


@pytest.mark.parametrize("field", ["mean_size", "standard_error", "row_kinds", "row_names"])
def test_an_array_of_another_length_than_there_are_rows_is_named(field: str) -> None:
    message = global_importance.encode(REPORT)
    whole = getattr(message.targets[1], field)
    if isinstance(whole, bytes):
        setattr(message.targets[1], field, whole[:-8])
    else:
        whole.pop()
    with pytest.raises(MalformedRequestError, match=r"^targets\."):
        global_importance.decode(message)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(place=st.integers(0, len(BODY) - 1), byte=st.integers(0, 255))
def test_a_changed_byte_of_a_report_gives_a_value_or_one_of_our_errors(place: int, byte: int) -> None:
    body = BODY[:place] + bytes([byte]) + BODY[place + 1 :]
    with contextlib.suppress(DecodeError, MalformedRequestError):
        global_importance.decode(pb.ExplainGlobalProgress.FromString(body))


def test_a_row_of_an_unknown_kind_is_refused() -> None:
    message = global_importance.encode(REPORT)
    message.targets[0].row_kinds[0] = 99  # pyright: ignore[reportArgumentType, reportCallIssue] - a newer server
    with pytest.raises(MalformedRequestError, match="row_kinds: 99 is unknown"):
        global_importance.decode(message)


def read(query: GlobalExplanationQuery) -> list[Instance]:
    return [one for one in query.instances if isinstance(one, Instance)]


def of_target(target: TargetImportance) -> tuple[object, ...]:
    """All fields of a target, arrays as bytes."""
    values = (getattr(target, one.name) for one in fields(target))
    return tuple(value.tobytes() if isinstance(value, np.ndarray) else value for value in values)


def of_refusal(refusal: Refusal) -> tuple[object, ...]:
    error = refusal.error
    return refusal.place, refusal.symbol, type(error), error.message, error.metadata
