"""Wire messages of quantra.v1: round trips, refused requests, and error details."""

import contextlib
import dataclasses
import re
from datetime import date

import numpy as np
import pytest
from canned_service import attribution, attribution_with_internals, forecast, model_info, ranking
from google.protobuf.message import DecodeError, Message
from hypothesis import given, settings
from hypothesis import strategies as st
from market import bokeh_panel

from predictor import errors
from predictor._pb import prediction_pb2 as pb
from predictor.bars import BarPanel
from predictor.errors import (
    BarsError,
    ExplainUnsupportedError,
    MalformedRequestError,
    QuantraError,
    RequestTooLargeError,
    TooFewBarsError,
)
from predictor.forecast import Attribution, Detail, Explanation, TargetPoint
from predictor.instance import ExplanationQuery, FeatureWindow, GapPolicy, Instance
from predictor.wire import arrays, attributions, forecasts, instances, limits, models
from predictor.wire import errors as wire_errors
from predictor.wire.request_counts import encode_field


def assert_same(left: object, right: object) -> None:
    """Assert that all fields are equal, and arrays bit for bit with dtype and shape."""
    assert dataclasses.is_dataclass(left)
    assert type(left) is type(right)
    for field in dataclasses.fields(left):
        assert_same_field(field.name, getattr(left, field.name), getattr(right, field.name))


def assert_same_field(name: str, one: object, other: object) -> None:
    if isinstance(one, np.ndarray):
        assert isinstance(other, np.ndarray), name
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes()), name
    elif name == "internals":
        assert isinstance(one, tuple), name
        assert isinstance(other, tuple), name
        for mine, others in zip(one, other, strict=True):
            assert_same(mine, others)
    else:
        assert one == other, name


def window(*, masked: bool = False, anchor: bool = True) -> FeatureWindow:
    rng = np.random.default_rng(0)
    return FeatureWindow(
        symbols=("A", "B"),
        observed=rng.normal(size=(2, 4, 3)).astype(np.float32),
        known=rng.normal(size=(2, 6, 2)).astype(np.float32),
        static=np.zeros((2, 0), np.float32),
        mask=rng.random((2, 4, 3)) > 0.5 if masked else np.ones((2, 4, 3), np.bool_),
        location=rng.normal(size=2),
        scale=rng.random(2),
        schema_hash="s" * 64,
        features=("return_1", "gap"),
        anchor_price=np.array([1.1, 2.2]) if anchor else None,
        as_of_session=date(2013, 3, 1),
    )


def small_panel() -> pb.BarPanel:
    return instances.encode_bars(bokeh_panel("AAPL").last(3))


def test_a_panel_comes_back_bit_for_bit() -> None:
    panel = bokeh_panel().last(50)
    assert_same(instances.decode_bars(instances.encode_bars(panel)), panel)


def test_a_panel_with_splits_and_dividends_comes_back() -> None:
    raw = bokeh_panel("AAPL").last(3)
    panel = dataclasses.replace(
        raw, adj_close=None, split_ratio=np.array([[1.0, np.nan, 2.0]]), cash_dividend=np.array([[0.0, 0.5, np.nan]])
    )
    assert_same(instances.decode_bars(instances.encode_bars(panel)), panel)


def test_floats_travel_little_endian_and_row_major() -> None:
    panel = bokeh_panel("AAPL", "IBM").last(2)
    assert instances.encode_bars(panel).close == b"".join(
        np.float64(x).astype("<f8").tobytes() for x in panel.close.flat
    )


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("anchor", [False, True])
def test_a_window_comes_back_bit_for_bit(*, masked: bool, anchor: bool) -> None:
    sent = window(masked=masked, anchor=anchor)
    assert_same(instances.decode_window(instances.encode_window(sent)), sent)


def test_decoding_copies_no_floats() -> None:
    message = pb.Forecast.FromString(forecasts.encode(forecast(("A",))))
    assert forecasts.decode(message).values.base is not None


@pytest.mark.parametrize("policy", list(GapPolicy))
def test_an_instance_comes_back_with_its_policies(policy: GapPolicy) -> None:
    panel = bokeh_panel("AAPL").last(3)
    sent = Instance(input=panel, request_id="seven", allow_incomplete_last_bar=True, gap_policy=policy)
    got = instances.decode(instances.encode(sent))
    assert (got.request_id, got.allow_incomplete_last_bar, got.gap_policy) == ("seven", True, policy)


def test_a_forecast_comes_back_bit_for_bit() -> None:
    sent = forecast(("A", "B", "C"))
    assert_same(forecasts.decode(pb.Forecast.FromString(forecasts.encode(sent))), sent)


def test_a_ranking_comes_back_bit_for_bit() -> None:
    sent = ranking(("A", "B", "C"))
    assert_same(forecasts.decode(pb.Forecast.FromString(forecasts.encode(sent))), sent)


def test_a_forecast_without_ranks_takes_no_room_for_them() -> None:
    message = pb.Forecast.FromString(forecasts.encode(forecast(("A",))))
    assert (message.scores, list(message.ranks), message.universe_hash) == (b"", [], "")


def test_an_attribution_comes_back_with_its_internals() -> None:
    sent = attribution_with_internals(("A", "B"))
    assert_same(attributions.decode(explained(sent)).attributions[0], sent)


def test_an_attribution_comes_back_with_why_a_symbol_has_none() -> None:
    sent = dataclasses.replace(
        attribution(("A", "B")), refusals={"B": TooFewBarsError("too few", metadata={"have": "3"})}
    )
    got = attributions.decode(explained(sent)).attributions[0].refusals
    assert [(s, type(e), e.message, e.metadata) for s, e in got.items()] == [
        ("B", TooFewBarsError, "too few", {"have": "3"})
    ]


def explained(one: Attribution) -> pb.ExplainResponse:
    return attributions.encode(Explanation(attributions=(one,), queue_ms=0.5, compute_ms=2.5), "seven")


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("values", "forecast.values: have 136 bytes, need 144"),
        ("scores", "forecast.scores: have 40 bytes, need 48"),
        ("ranks", "forecast.ranks: have 5 values, need 6"),
        ("target_sessions", "forecast.target_sessions: have 1 values, need 2"),
    ],
)
def test_a_forecast_with_a_field_of_another_length_is_refused(field: str, problem: str) -> None:
    message = pb.Forecast.FromString(forecasts.encode(ranking(("A", "B", "C"))))
    shorten(message, field)
    with pytest.raises(MalformedRequestError, match=re.escape(problem)):
        forecasts.decode(message)


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("per_row", "attribution.per_row: have 40 bytes, need 48"),
        ("row_names", "attribution.row_names: have 2 values, need 3"),
        ("row_kinds", "attribution.row_names: have 3 values, need 2"),
        ("sessions", "attribution.per_time: have 64 bytes, need 48"),
        ("per_time", "attribution.per_time: have 56 bytes, need 64"),
        ("cells", "attribution.cells: have 120 bytes, need 128"),
        ("converged", "attribution.converged: have 1 values, need 2"),
        ("nodes", "attribution.nodes: have 1 values, need 2"),
    ],
)
def test_an_attribution_with_a_field_of_another_length_is_refused(field: str, problem: str) -> None:
    message = explained(attribution_with_internals(("A", "B")))
    shorten(message.attributions[0], field)
    with pytest.raises(MalformedRequestError, match=re.escape(problem)):
        attributions.decode(message)


@pytest.mark.parametrize("field", ["labels", "values"])
def test_an_internal_with_a_field_of_another_length_is_refused(field: str) -> None:
    message = explained(attribution_with_internals(("A", "B")))
    shorten(message.attributions[0].internals[1], field)
    with pytest.raises(MalformedRequestError, match=r"attribution.internals: have \d+ bytes, need \d+"):
        attributions.decode(message)


def shorten(message: Message, field: str) -> None:
    """Remove the last number of a field."""
    value = getattr(message, field)
    if isinstance(value, bytes):
        setattr(message, field, value[:-8])
    else:
        del value[-1]


def test_an_internal_of_a_newer_servers_axis_is_refused() -> None:
    message = explained(attribution_with_internals(("A",)))
    message.attributions[0].internals[0].axis = pb.INTERNAL_AXIS_UNSPECIFIED
    with pytest.raises(MalformedRequestError, match="axis 0 is unknown; the server is newer"):
        attributions.decode(message)


def test_a_kind_of_row_of_a_newer_server_is_refused() -> None:
    message = explained(attribution_with_internals(("A",)))
    message.attributions[0].row_kinds[0] = 99  # pyright: ignore[reportArgumentType, reportCallIssue] - a newer server's
    with pytest.raises(MalformedRequestError, match="row_kinds: 99 is unknown"):
        attributions.decode(message)


def mutated_bytes(body: bytes, draw: st.DrawFn) -> bytes:
    """The bytes with random changes."""
    some = bytearray(body)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(some) - 1)))
        change = draw(st.sampled_from(("set", "set", "remove", "insert", "cut")))
        if change == "set":
            some[place : place + 1] = bytes([draw(st.integers(0, 255))])
        elif change == "remove":
            del some[place : place + draw(st.integers(1, 9))]
        elif change == "insert":
            some[place:place] = draw(st.binary(min_size=1, max_size=9))
        else:
            del some[place:]
    return bytes(some)


ANSWERS = {
    "forecast": forecasts.encode(ranking(("A", "B"))),
    "explanation": explained(attribution_with_internals(("A", "B"))).SerializeToString(),
}


@st.composite
def changed_answer(draw: st.DrawFn) -> tuple[str, bytes]:
    name = draw(st.sampled_from(sorted(ANSWERS)))
    return name, mutated_bytes(ANSWERS[name], draw)


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(answer=changed_answer())
def test_changed_bytes_of_an_answer_are_a_value_or_one_of_our_errors(answer: tuple[str, bytes]) -> None:
    name, body = answer
    with contextlib.suppress(DecodeError, MalformedRequestError, ExplainUnsupportedError):
        if name == "forecast":
            forecasts.decode(pb.Forecast.FromString(body))
        else:
            attributions.decode(pb.ExplainResponse.FromString(body))


@pytest.mark.parametrize("detail", list(Detail))
def test_an_attribution_comes_back_bit_for_bit(detail: Detail) -> None:
    full = attribution(("A", "B"))
    kept = {
        Detail.FEATURES: dataclasses.replace(full, per_time=None, cells=None),
        Detail.TIMES: dataclasses.replace(full, cells=None),
        Detail.CELLS: full,
    }[detail]
    got = attributions.decode(
        attributions.encode(Explanation(attributions=(kept,), queue_ms=0.5, compute_ms=2.5), "seven")
    )
    assert (got.queue_ms, got.compute_ms) == (0.5, 2.5)
    assert_same(got.attributions[0], kept)


def test_an_attribution_without_known_sessions_keeps_its_times() -> None:
    sent = dataclasses.replace(attribution(("A",)), sessions=())
    message = attributions.encode(Explanation(attributions=(sent,), queue_ms=0, compute_ms=0), "")
    assert_same(attributions.decode(message).attributions[0], sent)


def test_a_model_comes_back_in_every_field() -> None:
    assert models.decode(models.encode(model_info())) == model_info()


def test_a_query_comes_back() -> None:
    instance = Instance(input=bokeh_panel("AAPL").last(3))
    sent = ExplanationQuery(
        instance=instance,
        targets=(TargetPoint(5, 0.9), TargetPoint(1, 0.5)),
        detail=Detail.CELLS,
        tolerance=0.05,
        symbols=("AAPL",),
    )
    got = attributions.decode_query(attributions.encode_query(sent, "small"))
    for name in ("targets", "detail", "tolerance", "method", "symbols"):
        assert getattr(got, name) == getattr(sent, name), name


def test_a_symbol_to_explain_of_a_megabyte_is_refused() -> None:
    message = attributions.encode_query(ExplanationQuery(instance=Instance(input=bokeh_panel("AAPL").last(3))), "")
    message.symbols.append("A" * 1_000_000)
    with pytest.raises(RequestTooLargeError, match="symbols: 'AAAA"):
        attributions.decode_query(message)


def test_a_query_without_tolerance_has_the_usual_one() -> None:
    message = attributions.encode_query(ExplanationQuery(instance=Instance(input=bokeh_panel("AAPL").last(3))), "")
    message.tolerance = 0
    assert attributions.decode_query(message).tolerance == 0.01


@pytest.mark.parametrize("kind", list(errors.ANSWERS), ids=lambda kind: kind.__name__)
def test_every_error_comes_back_as_itself(kind: type[QuantraError]) -> None:
    sent = kind("what, which, what to do", metadata={"have": "59"})
    for got in (
        wire_errors.decode(wire_errors.encode(sent)),
        wire_errors.decode_details(wire_errors.encode_details(sent)),
    ):
        assert got is not None
        assert type(got) is kind
        assert (got.message, got.metadata) == (sent.message, sent.metadata)


def test_an_instance_error_has_the_number_of_its_status() -> None:
    assert wire_errors.encode(TooFewBarsError("too few")).code == 3  # google.rpc.Code.INVALID_ARGUMENT


def test_the_reason_of_a_newer_server_becomes_a_plain_error() -> None:
    got = wire_errors.decode(pb.Error(code=9, message="new", reason="NOT_INVENTED_YET"))
    assert type(got) is QuantraError


def test_details_of_another_system_are_no_error_of_ours() -> None:
    assert wire_errors.decode_details(b"\xff\xff") is None
    assert wire_errors.decode_details(b"") is None


def test_details_of_a_call_fit_into_its_trailers() -> None:
    huge = QuantraError("\u20ac" * 100_000, metadata={f"key {n}": "\u20ac" * 10_000 for n in range(100)})
    message = wire_errors.shortened(huge.message, wire_errors.MAX_CALL_MESSAGE)
    escaped = 3 * len(message.encode())
    in_base64 = 4 * len(wire_errors.encode_details(huge)) // 3
    assert escaped + in_base64 < 8 * 1024


@pytest.mark.parametrize("field", ["open", "high", "low", "close", "volume", "adj_close"])
def test_bytes_of_another_length_are_refused_with_have_and_need(field: str) -> None:
    message = small_panel()
    setattr(message, field, getattr(message, field)[:-1])
    with pytest.raises(MalformedRequestError, match=f"bars.{field}: have 23 bytes, need 24") as refused:
        instances.decode_bars(message)
    assert refused.value.metadata == {"field": f"bars.{field}", "have": "23", "need": "24"}


def test_a_missing_column_is_refused() -> None:
    message = small_panel()
    message.ClearField("close")
    with pytest.raises(MalformedRequestError, match=r"bars.close: have 0 bytes, need 24"):
        instances.decode_bars(message)


def test_a_panel_without_symbols_is_refused() -> None:
    with pytest.raises(MalformedRequestError, match="symbols: have 0"):
        instances.decode_bars(pb.BarPanel())


def test_an_interval_that_is_not_a_day_is_refused() -> None:
    message = small_panel()
    message.interval = 5  # pyright: ignore[reportAttributeAccessIssue] - what a newer client may send
    with pytest.raises(MalformedRequestError, match=r"bars.interval: 5 is not supported; send daily bars"):
        instances.decode_bars(message)


def test_an_unknown_gap_policy_is_refused() -> None:
    message = pb.Instance(bars=small_panel())
    message.bars.gap_policy = 9  # pyright: ignore[reportAttributeAccessIssue] - what a newer client may send
    with pytest.raises(MalformedRequestError, match="gap_policy: 9 is unknown"):
        instances.decode(message)


@pytest.mark.parametrize(
    ("symbols", "sessions"), [(limits.MAX_SYMBOLS + 1, 1), (1, limits.MAX_SESSIONS + 1), (5000, 5000)]
)
def test_a_panel_beyond_the_bounds_is_refused_before_its_arrays_are_built(symbols: int, sessions: int) -> None:
    message = pb.BarPanel(symbols=["A"] * symbols, session_yyyymmdd=range(sessions))
    with pytest.raises(RequestTooLargeError, match="at most"):
        instances.decode_bars(message)


def test_a_symbol_of_a_megabyte_is_refused_without_repeating_it() -> None:
    message = small_panel()
    message.symbols[0] = "x" * 1_000_000
    with pytest.raises(RequestTooLargeError) as refused:
        instances.decode_bars(message)
    assert len(refused.value.message) < 200


@pytest.mark.parametrize("name", ["observed", "known", "static", "location", "scale"])
def test_a_missing_tensor_is_refused_by_name(name: str) -> None:
    message = instances.encode_window(window())
    message.ClearField(name)  # pyright: ignore[reportArgumentType] - the names above are fields
    with pytest.raises(MalformedRequestError, match=f"window.{name}: is missing"):
        instances.decode_window(message)


@pytest.mark.parametrize(
    "shape", [[2, 4], [2, 4, 3, 1], [3, 4, 2], [2, -4, -3], [-2, -4, 3], [], [2, 4, 2], [2, 2**62, 2**62]]
)
def test_a_tensor_of_another_shape_is_refused(shape: list[int]) -> None:
    message = instances.encode_window(window())
    message.observed.shape[:] = shape
    with pytest.raises((MalformedRequestError, RequestTooLargeError), match=r"window.observed"):
        instances.decode_window(message)


def test_a_tensor_of_another_type_is_refused() -> None:
    message = instances.encode_window(window())
    message.location.type = pb.DATA_TYPE_FLOAT32
    with pytest.raises(MalformedRequestError, match=r"window.location: has data type 1, need 2"):
        instances.decode_window(message)


def test_a_mask_byte_that_is_no_truth_value_is_refused() -> None:
    message = instances.encode_window(window(masked=True))
    message.mask.data = b"\x02" + message.mask.data[1:]
    with pytest.raises(MalformedRequestError, match="neither 0 nor 1"):
        instances.decode_window(message)


def test_a_mask_of_another_shape_than_the_cells_is_refused() -> None:
    message = instances.encode_window(window(masked=True))
    message.mask.shape[:] = [2, 3, 4]
    with pytest.raises(MalformedRequestError, match=r"window.mask: has shape \[2, 3, 4\]"):
        instances.decode_window(message)


def test_a_mask_of_another_shape_is_refused_even_if_it_is_true_throughout() -> None:
    message = instances.encode_window(dataclasses.replace(window(), mask=np.ones((2, 3, 3), np.bool_)))
    with pytest.raises(MalformedRequestError, match=r"window.mask: has shape \[2, 3, 3\]"):
        instances.decode_window(message)


def test_anchor_prices_are_one_a_symbol() -> None:
    message = instances.encode_window(window())
    message.anchor_price.append(3.3)
    with pytest.raises(MalformedRequestError, match="have 3 prices, need 2"):
        instances.decode_window(message)


def test_an_instance_without_input_is_refused() -> None:
    with pytest.raises(MalformedRequestError, match="no input"):
        instances.decode(pb.Instance(request_id="empty"))


def test_a_bad_instance_leaves_the_others_whole() -> None:
    good = pb.Instance(bars=small_panel())
    decoded = instances.decode_each([good, pb.Instance(), good])
    assert [type(item) for item in decoded] == [Instance, MalformedRequestError, Instance]


@pytest.mark.parametrize("tolerance", [-0.1, 9.9e-5, 1.0, float("nan"), float("inf")])
def test_a_tolerance_that_is_no_gap_is_refused(tolerance: float) -> None:
    message = attributions.encode_query(ExplanationQuery(instance=Instance(input=bokeh_panel("AAPL").last(3))), "")
    message.tolerance = tolerance
    with pytest.raises(MalformedRequestError, match=r"tolerance: .* from 0\.0001 to below 1"):
        attributions.decode_query(message)


def test_too_many_targets_are_refused() -> None:
    message = pb.ExplainRequest(targets=[pb.ExplainTarget(horizon=1, quantile=0.5)] * (limits.MAX_TARGETS + 1))
    with pytest.raises(RequestTooLargeError, match="targets: have 257, at most 256"):
        attributions.decode_query(message)


def test_an_unknown_method_lists_the_known_ones() -> None:
    message = attributions.encode_query(ExplanationQuery(instance=Instance(input=bokeh_panel("AAPL").last(3))), "")
    message.method = 7  # pyright: ignore[reportAttributeAccessIssue] - what a newer client may send
    with pytest.raises(ExplainUnsupportedError, match="unknown explanation method 7; use one of integrated-gradients"):
        attributions.decode_query(message)


def test_an_unknown_detail_is_refused() -> None:
    message = attributions.encode_query(ExplanationQuery(instance=Instance(input=bokeh_panel("AAPL").last(3))), "")
    message.detail = 7  # pyright: ignore[reportAttributeAccessIssue] - what a newer client may send
    with pytest.raises(MalformedRequestError, match="detail: 7 is unknown"):
        attributions.decode_query(message)


def test_a_panel_from_the_wire_is_checked_like_any_other() -> None:
    message = small_panel()
    message.session_yyyymmdd[:] = [20130301, 20130228, 20130301]
    with pytest.raises(QuantraError):
        instances.decode_bars(message)


def test_a_symbol_with_an_impossible_bar_loses_its_bars_and_has_its_reason() -> None:
    panel = bokeh_panel("AAPL", "IBM", "MSFT").last(5)
    message = instances.encode(Instance(input=panel))
    message.bars.low = arrays.encode_float64(np.where(np.arange(3)[:, None] == 1, -1.0, panel.low))
    read = instances.decode(message)
    assert isinstance(read.input, BarPanel)
    assert read.input.symbols == panel.symbols
    assert np.isnan(read.input.close[1]).all()
    np.testing.assert_array_equal(read.input.low[::2], panel.low[::2])
    assert list(read.symbol_errors) == ["IBM"]
    assert read.symbol_errors["IBM"].message.startswith("IBM 2013-02-25: low is -1")


def test_a_panel_with_impossible_bars_of_most_symbols_is_refused() -> None:
    panel = bokeh_panel("AAPL", "IBM", "MSFT").last(5)
    message = instances.encode(Instance(input=panel))
    message.bars.low = arrays.encode_float64(np.where(np.arange(3)[:, None] > 0, -1.0, panel.low))
    with pytest.raises(BarsError, match=r"^IBM 2013-02-25: low is -1"):
        instances.decode(message)


def test_a_decoded_panel_is_a_panel() -> None:
    assert isinstance(instances.decode(pb.Instance(bars=small_panel())).input, BarPanel)


@pytest.mark.parametrize("size", [1, 127, 128, 16_383, 16_384])
def test_a_field_is_encoded_as_protobuf_does(size: int) -> None:
    assert encode_field(pb.Tensor.DATA_FIELD_NUMBER, bytes(size)) == pb.Tensor(data=bytes(size)).SerializeToString()
