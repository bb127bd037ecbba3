"""KServe protocol: the numbers of Predict bit for bit, and every error."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pytest
from artifacts import recent_bars, save_small_artifact, small_artifact, small_models
from canned_service import CannedService, forecast_of
from covariate_files import bars as bars_beside_covariates
from covariate_files import save_artifact_with, source
from google.protobuf import descriptor_pool
from kserve_requests import (
    Values,
    a_window,
    bars,
    days_of,
    infer_request,
    outputs_in,
    parameters,
    tensor_of,
    wanting,
    windows,
)
from request_bytes import PIPELINE, flat_window

from predictor._pb import inference_pb2 as pb
from predictor._pb import prediction_pb2 as ours
from predictor.bars import BarPanel
from predictor.call_context import CallContext
from predictor.calls import AdminCalls, PredictionCalls
from predictor.calls.futures import MAX_INLINE_PARTS
from predictor.covariates import CovariateSource
from predictor.dates import to_optional_date
from predictor.errors import (
    BarsError,
    BarsStaleError,
    CalendarEndedError,
    FeatureMismatchError,
    MalformedRequestError,
    ModelNotFoundError,
    PermissionDeniedError,
    QuantraError,
    RequestTooLargeError,
    SessionGapError,
    TooFewBarsError,
    VersionNotFoundError,
    WindowShapeError,
    format_date,
)
from predictor.forecast import Forecast, Outcome
from predictor.instance import FeatureWindow, GapPolicy, Instance
from predictor.networks import Target, TargetKind
from predictor.registry import set_alias
from predictor.service import PredictionService
from predictor.wire import forecasts, instances, request_counts
from predictor.wire.kserve.requests import read_request
from predictor.wire.kserve.tensors import InputTensor, count_epoch_days, decode_varints
from predictor.wire.limits import MAX_CELLS, MAX_HEAD, MAX_INPUTS, MAX_ROWS, MAX_SESSIONS
from predictor.wire.request_counts import TooManyPartsError

if TYPE_CHECKING:
    from concurrent.futures import Future

CELLS = ("values", "returns", "prices")
NAT = np.iinfo(np.int64).min


@pytest.fixture(params=["parsed whole where it is small", "taken apart"], autouse=True)
def request_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test also with the path for large requests."""
    if request.param == "taken apart":
        monkeypatch.setattr(request_counts, "SMALL", 0)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CovariateSource:
    return source(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, files: CovariateSource) -> Path:
    folder = small_models(tmp_path_factory.mktemp("models"))
    save_small_artifact(folder / "small" / "2", seed=2)
    set_alias(folder / "small", "champion", 1)
    set_alias(folder / "small", "canary", 2)
    save_small_artifact(folder / "graph" / "1", "graph")
    save_small_artifact(folder / "har" / "1", "har")
    save_small_artifact(folder / "volatility" / "1", target=Target(kind=TargetKind.LOG_VOLATILITY))
    save_small_artifact(folder / "lagged" / "1", target=Target(lag=1))
    save_artifact_with(folder / "covariates" / "1", files)
    return folder


@pytest.fixture(scope="module")
def service(models: Path) -> Iterator[PredictionService]:
    with PredictionService.open(models) as service:
        yield service


@pytest.fixture(scope="module")
def calls(service: PredictionService) -> Iterator[PredictionCalls]:
    calls = PredictionCalls(service)
    yield calls
    calls.close()


def infer(calls: PredictionCalls, request: pb.ModelInferRequest) -> pb.ModelInferResponse:
    return pb.ModelInferResponse.FromString(
        calls.handle("ModelInfer", request.SerializeToString(), CallContext()).result()
    )


def predicted(calls: PredictionCalls, model: str, *asked: Instance) -> list[Forecast]:
    request = ours.PredictRequest(model=model, instances=map(instances.encode, asked))
    answer = ours.PredictResponse.FromString(
        calls.handle("Predict", request.SerializeToString(), CallContext()).result()
    )
    return [forecasts.decode(result.forecast) for result in answer.results]


def refusal(calls: PredictionCalls, request: pb.ModelInferRequest) -> QuantraError:
    error = calls.handle("ModelInfer", request.SerializeToString(), CallContext()).exception()
    assert isinstance(error, QuantraError)
    return error


def assert_same_bits(have: Values, want: Values | None) -> None:
    assert want is not None
    assert have.tobytes() == want.tobytes()


def a_panel() -> BarPanel:
    return recent_bars("AAPL", "IBM")


# --- the same numbers


@pytest.mark.parametrize("is_raw", [True, False], ids=["raw", "typed"])
def test_windows_have_the_bits_of_predict(calls: PredictionCalls, *, is_raw: bool) -> None:
    told = outputs_in(infer(calls, infer_request(a_window(), is_raw=is_raw)))
    (forecast,) = predicted(calls, "small", Instance(input=flat_window()))
    for name in CELLS:
        assert_same_bits(told[name][0], getattr(forecast, name))
    assert told["values"].shape == (1, 1, 4, 3)


@pytest.mark.parametrize("is_raw", [True, False], ids=["raw", "typed"])
@pytest.mark.parametrize("model", ["small", "graph", "har"])
def test_bars_have_the_bits_of_predict(calls: PredictionCalls, model: str, *, is_raw: bool) -> None:
    told = outputs_in(infer(calls, infer_request(bars(a_panel()), model, is_raw=is_raw)))
    (forecast,) = predicted(calls, model, Instance(input=a_panel()))
    for name in CELLS:
        assert_same_bits(told[name][0], getattr(forecast, name))


def test_levels_of_each_horizon_are_read_as_the_model_has_them(calls: PredictionCalls) -> None:
    pipeline = small_artifact("har").pipeline
    inputs = pipeline.latest_window(pipeline.encode_latest(recent_bars()))
    window = FeatureWindow(
        symbols=("AAPL",),
        **{name: getattr(inputs, name).numpy() for name in ("observed", "known", "static", "mask")},
        location=inputs.location.numpy(),
        scale=inputs.scale.numpy(),
        schema_hash=pipeline.features.schema_hash,
    )
    assert window.location.shape == (1, 4)
    told = outputs_in(infer(calls, infer_request(windows(replace(window, as_of_session=date(2013, 3, 1))), "har")))
    (forecast,) = predicted(calls, "har", Instance(input=window))
    assert_same_bits(told["values"][0], forecast.values)
    assert np.isnan(told["prices"]).all()  # there is no anchor


def test_levels_of_one_column_are_as_levels_without(calls: PredictionCalls) -> None:
    tensors = a_window()
    column = {**tensors, "location": tensors["location"][:, None], "scale": tensors["scale"][:, None]}
    ways = [outputs_in(infer(calls, infer_request(one)))["values"] for one in (tensors, column)]
    assert_same_bits(*ways)


def test_each_row_is_forecast_by_itself_and_padding_changes_nothing(calls: PredictionCalls) -> None:
    panels = (recent_bars("IBM"), a_panel())
    told = outputs_in(infer(calls, infer_request(bars(*panels), "graph")))
    alone, both = predicted(calls, "graph", *(Instance(input=panel) for panel in panels))
    assert_same_bits(told["values"][0, :1], alone.values)
    assert_same_bits(told["values"][1], both.values)
    assert np.isnan(told["values"][0, 1]).all()
    assert_same_bits(told["ranks"][1], both.ranks)
    assert_same_bits(told["scores"][0, :1], alone.scores)
    assert told["ranks"][0, 1].tolist() == [0] * 4


def test_padding_may_stand_before_the_symbols(calls: PredictionCalls) -> None:
    panels = (recent_bars("IBM"), a_panel())
    tensors = bars(*panels)
    for name, values in tensors.items():
        if name != "date":
            tensors[name] = values[:, ::-1]
    told = outputs_in(infer(calls, infer_request(tensors, "graph")))
    alone, both = predicted(
        calls, "graph", Instance(input=panels[0]), Instance(input=a_panel().select(["IBM", "AAPL"]))
    )
    assert_same_bits(told["values"][0, 1:], alone.values)
    assert np.isnan(told["values"][0, 0]).all()
    assert_same_bits(told["values"][1], both.values)
    first = {name: values[:1] for name, values in tensors.items()}
    assert_same_bits(outputs_in(infer(calls, infer_request(first, "graph")))["values"], told["values"][:1])


@final
class RecordingService:
    """A service that records its requests per row; each forecast warns with its symbols."""

    def __init__(self) -> None:
        self.rows: list[Instance] = []
        self.calls = PredictionCalls(CannedService(self._answer))

    def _answer(self, instance: Instance) -> Forecast:
        self.rows.append(instance)
        return replace(forecast_of(instance), warnings=("of all", *instance.input.symbols))


def test_each_row_of_windows_has_its_own_part_of_every_input() -> None:
    draw, rows, asked = np.random.default_rng(5), 3, RecordingService()
    days = np.array([[20130227], [20130228], [20130301]])
    sent = {
        "observed": draw.normal(size=(rows, 4, 2)).astype(np.float32),
        "known": draw.normal(size=(rows, 6, 3)).astype(np.float32),
        "static": draw.normal(size=(rows, 2)).astype(np.float32),
        "mask": draw.random((rows, 4, 2)) < 0.5,
        "location": draw.normal(size=rows),
        "scale": draw.random(rows),
        "anchor_price": draw.random(rows),
    }
    tensors = {**sent, "symbol": np.array([[b"A"], [b"B"], [b"C"]], np.object_), "date": days_of(days)}
    chosen = parameters(schema_hash="7" * 64, max_age_sessions=0)
    infer(asked.calls, infer_request(tensors, "canned", parameters=chosen))
    for row, (instance, symbol, day) in enumerate(zip(asked.rows, "ABC", days[:, 0].tolist(), strict=True)):
        window = instance.input
        assert isinstance(window, FeatureWindow)
        for name, values in sent.items():
            assert np.array_equal(getattr(window, name), values[row : row + 1]), name
        assert (window.symbols, window.as_of_session) == ((symbol,), to_optional_date(day))
        assert (window.schema_hash, instance.max_age_sessions) == ("7" * 64, 0)
    asked.calls.close()


@pytest.mark.parametrize("adjusting", [("adj_close",), ("split_ratio", "cash_dividend")], ids=str)
def test_each_row_of_bars_has_its_own_part_of_every_input_without_what_pads(adjusting: tuple[str, ...]) -> None:
    draw, asked = np.random.default_rng(5), RecordingService()
    tensors = {name: draw.random((2, 3, 2)) + 1 for name in ("volume", *adjusting)}
    tensors |= {
        "observed.o": draw.random((2, 3, 2)),
        "known.k": draw.random((2, 3, 4)),
        "static.n": draw.random((2, 3)),
    }
    prices = draw.random((2, 3, 2)) + 10
    tensors |= {name: prices + shift for name, shift in (("low", -1), ("open", 0), ("close", 0.5), ("high", 1))}
    days = np.array([[20130227, 20130228], [20130228, 20130301]])
    ahead = np.array([[20130301, 20130304], [20130304, 20130305]])
    names = np.array([[b"A", b"", b"B"], [b"", b"C", b""]], np.object_)
    texts = np.array([[b"x", b"", b"y"], [b"", b"z", b""]], np.object_)
    beside = {"date": days_of(days), "future_date": days_of(ahead), "symbol": names, "static.c": texts}
    chosen = parameters(gap_policy="ignore", calendar="XNYS", allow_incomplete_last_bar=True, max_age_sessions=0)
    infer(asked.calls, infer_request({**tensors, **beside}, "canned", parameters=chosen))
    for row, (instance, places) in enumerate(zip(asked.rows, ([0, 2], [1]), strict=True)):
        panel, covariates = instance.input, instance.covariates
        assert isinstance(panel, BarPanel)
        assert panel.symbols == tuple(names[row, place].decode() for place in places)
        for name in panel.columns:
            assert np.array_equal(getattr(panel, name), tensors[name][row, places]), name
        assert {*panel.columns} >= {*adjusting}
        assert (panel.sessions.tolist(), covariates.future_sessions.tolist()) == (
            days[row].tolist(),
            ahead[row].tolist(),
        )
        for name, values in (
            ("observed.o", covariates.observed),
            ("known.k", covariates.known),
            ("static.n", covariates.numbers),
        ):
            assert np.array_equal(values[name[-1]], tensors[name][row, places]), name
        assert covariates.categories["c"] == tuple(texts[row, place].decode() for place in places)
        assert (panel.calendar, instance.gap_policy, instance.max_age_sessions) == ("XNYS", GapPolicy.IGNORE, 0)
        assert instance.allow_incomplete_last_bar
    asked.calls.close()


@final
class ModelRecorder(CannedService):
    """Records the requested model."""

    def __init__(self) -> None:
        super().__init__(forecast_of)
        self.references: list[str] = []

    def predict(
        self,
        reference: str,
        request: Any,
        context: CallContext,
        encode: Callable[[tuple[Outcome, ...]], Any] | None = None,
        *,
        inline: bool = False,
    ) -> "Future[Any]":
        self.references.append(reference)
        return super().predict("canned", request, context, encode, inline=inline)


def test_windows_are_answered_by_the_version_whose_form_they_were_read_in_and_bars_by_the_champion() -> None:
    service = ModelRecorder()
    calls = PredictionCalls(service)
    for tensors in (a_window(), bars(recent_bars("AAPL"))):
        infer(calls, infer_request(tensors, "canned"))
    assert service.references == ["canned@1", "canned"]
    calls.close()


def test_warnings_of_all_rows_are_given_once() -> None:
    asked = RecordingService()
    answer = infer(asked.calls, infer_request(bars(recent_bars("AAPL"), recent_bars("IBM")), "canned"))
    assert answer.parameters["warnings"].string_param == "of all\nAAPL\nIBM"
    asked.calls.close()


def test_covariates_have_the_bits_of_predict(
    calls: PredictionCalls, service: PredictionService, files: CovariateSource
) -> None:
    panel = bars_beside_covariates().last(200)
    beside = files.for_model(service.model("covariates"), panel)
    assert beside.observed
    assert beside.known
    assert len(beside.future_sessions)
    assert beside.numbers
    assert beside.categories
    told = outputs_in(infer(calls, infer_request(bars(panel, beside=beside), "covariates")))
    (forecast,) = predicted(calls, "covariates", Instance(input=panel, covariates=beside))
    assert_same_bits(told["values"][0], forecast.values)


def test_columns_of_adjustments_are_read(calls: PredictionCalls) -> None:
    panel = a_panel()
    split = np.ones(panel.close.shape)
    split[0, -30] = 2.0
    sent = replace(panel, adj_close=None, split_ratio=split, cash_dividend=np.full(panel.close.shape, 0.01))
    told = outputs_in(infer(calls, infer_request(bars(sent))))
    (forecast,) = predicted(calls, "small", Instance(input=sent))
    assert_same_bits(told["values"][0], forecast.values)


def test_gaps_are_read_as_the_parameter_says(calls: PredictionCalls) -> None:
    kept, whole = np.delete(np.arange(200), 150), bars(a_panel())
    tensors = {name: values if name == "symbol" else values[..., kept] for name, values in whole.items()}
    assert isinstance(refusal(calls, infer_request(tensors)), SessionGapError)
    chosen = parameters(gap_policy="ignore", allow_incomplete_last_bar=True, calendar="XNYS")
    told = outputs_in(infer(calls, infer_request(tensors, parameters=chosen)))
    assert np.isfinite(told["values"]).all()
    error = refusal(calls, infer_request(tensors, parameters=parameters(gap_policy="ignore", calendar="XLON")))
    assert "XLON" in error.message


def test_bars_that_are_too_old_are_refused_as_the_parameter_says(calls: PredictionCalls) -> None:
    asked = infer_request(bars(a_panel()), parameters=parameters(max_age_sessions=0))
    assert isinstance(refusal(calls, asked), BarsStaleError | CalendarEndedError)


def test_windows_without_a_date_have_no_age(calls: PredictionCalls) -> None:
    dated = a_window()
    undated = {name: values for name, values in dated.items() if name != "date"}
    asked = infer_request(undated, parameters=parameters(max_age_sessions=9))
    assert isinstance(refusal(calls, asked), BarsStaleError)


def test_dates_of_an_answer_are_days_since_1970(calls: PredictionCalls) -> None:
    told = outputs_in(infer(calls, infer_request(bars(a_panel()))))
    assert told["as_of"].astype("datetime64[D]").astype(str).tolist() == ["2013-03-01"]
    assert told["target_date"].astype("datetime64[D]").astype(str).tolist() == [
        ["2013-03-04", "2013-03-08", "2013-03-15", "2013-04-01"]
    ]
    tensors = a_window()
    del tensors["date"]
    assert outputs_in(infer(calls, infer_request(tensors)))["as_of"].tolist() == [NAT]


def test_a_response_names_its_model(calls: PredictionCalls, service: PredictionService) -> None:
    answer = infer(calls, infer_request(a_window(), id="seven"))
    info = service.model("small@1")
    assert (answer.model_name, answer.model_version, answer.id) == ("small", "1", "seven")
    told = {name: one.string_param for name, one in answer.parameters.items()}
    assert (told["model"], told["weights_hash"]) == ("small@1", info.weights_hash)


@pytest.mark.parametrize(("version", "served"), [("", "1"), ("2", "2"), ("champion", "1"), ("canary", "2")])
def test_a_version_is_a_number_or_an_alias_and_none_is_the_champion(
    calls: PredictionCalls, version: str, served: str
) -> None:
    for tensors in (a_window(), bars(recent_bars())):
        assert infer(calls, infer_request(tensors, model_version=version)).model_version == served


def test_outputs_are_those_that_are_asked_for_in_that_order(calls: PredictionCalls) -> None:
    answer = infer(calls, infer_request(a_window(), outputs=wanting("error", "values")))
    assert [one.name for one in answer.outputs] == ["error", "values"]
    assert len(answer.raw_output_contents) == 2


# --- one bad instance among many


def test_a_bad_row_has_nan_and_a_reason_and_ends_no_other(calls: PredictionCalls) -> None:
    good, bad = flat_window(), replace(flat_window(), scale=np.full(1, -1.0))
    told = outputs_in(infer(calls, infer_request(windows(good, bad, good))))
    sent = predicted(calls, "small", *(Instance(input=window) for window in (good, bad, good)))
    for row in (0, 2):
        assert_same_bits(told["values"][row], sent[row].values)
    assert np.isnan(told["values"][1]).all()
    assert told["error"].tolist() == ["", "scale holds a value that is not positive", ""]
    assert told["as_of"].tolist()[1] == NAT


def test_a_bad_panel_fails_next_to_good_ones(calls: PredictionCalls) -> None:
    bad = bars(a_panel(), a_panel())
    bad["high"][0, :, 7] = -3.0
    told = outputs_in(infer(calls, infer_request(bad)))
    assert told["error"][0].startswith("AAPL")
    assert (told["error"][1], np.isnan(told["values"][0]).all()) == ("", True)
    (alone,) = predicted(calls, "small", Instance(input=a_panel()))
    assert_same_bits(told["values"][1], alone.values)


def test_a_row_without_any_symbol_is_that_rows_own_error(calls: PredictionCalls) -> None:
    tensors = bars(a_panel(), a_panel())
    tensors["symbol"][1] = b""
    assert outputs_in(infer(calls, infer_request(tensors)))["error"].tolist() == [
        "",
        "row 1 has no symbol; name each, and pad with empty names",
    ]


def test_where_all_rows_fail_the_call_fails_with_the_first_ones_error(calls: PredictionCalls) -> None:
    tensors = bars(a_panel(), a_panel())
    tensors["high"][0, :, 7] = tensors["high"][1, :, 9] = -3.0
    error = refusal(calls, infer_request(tensors))
    assert isinstance(error, BarsError)
    assert error.metadata["date"] == format_date(int(a_panel().sessions[7]))


def test_a_symbol_with_an_impossible_bar_fails_alone(calls: PredictionCalls) -> None:
    tensors = bars(a_panel())
    tensors["high"][0, 1, 7] = -3.0
    told = outputs_in(infer(calls, infer_request(tensors)))
    assert told["refusal"][0, 0] == ""
    assert told["refusal"][0, 1].startswith("IBM 20")
    (alone,) = predicted(calls, "small", Instance(input=a_panel().select(["AAPL"])))
    assert_same_bits(told["values"][0, :1], alone.values)


def test_a_symbol_without_a_forecast_has_its_reason(calls: PredictionCalls) -> None:
    tensors = bars(a_panel())
    for name in ("open", "high", "low", "close", "volume", "adj_close"):
        tensors[name][0, 1, :-5] = np.nan
    told = outputs_in(infer(calls, infer_request(tensors)))
    assert (told["error"].tolist(), told["refusal"][0, 0]) == ([""], "")
    assert told["refusal"][0, 1].startswith("IBM: have")
    assert np.isnan(told["values"][0, 1]).all()


# --- refusals


def _with(**changes: Values) -> Callable[[], pb.ModelInferRequest]:
    return lambda: infer_request({**a_window(), **changes})


def _without_input(name: str, tensors: Callable[[], dict[str, Values]]) -> Callable[[], pb.ModelInferRequest]:
    return lambda: infer_request({key: values for key, values in tensors().items() if key != name})


def _bars_with(**changes: Values) -> Callable[[], pb.ModelInferRequest]:
    return lambda: infer_request({**bars(a_panel()), **changes})


def _changed(change: Callable[[pb.ModelInferRequest], object], *, is_raw: bool = True) -> Callable[[], Any]:
    def request() -> pb.ModelInferRequest:
        made = infer_request(a_window(), is_raw=is_raw)
        change(made)
        return made

    return request


def _set(field: str, value: object) -> Callable[[pb.ModelInferRequest], object]:
    return lambda request: setattr(request.inputs[0], field, value)


def _shape(*lengths: int) -> Callable[[], pb.ModelInferRequest]:
    """Of `observed`."""

    def change(request: pb.ModelInferRequest) -> None:
        request.inputs[0].shape[:] = lengths

    return _changed(change)


@pytest.mark.parametrize(
    ("request_of", "kind", "words"),
    [
        (lambda: infer_request({**a_window(), **bars(a_panel())}), MalformedRequestError, "both of the inputs"),
        (lambda: infer_request({"mask": np.ones(1, np.bool_)}), MalformedRequestError, "neither of the inputs"),
        (lambda: infer_request(a_window(), "nothing"), ModelNotFoundError, "there is no model 'nothing'"),
        (lambda: infer_request(a_window(), model_version="9"), VersionNotFoundError, "9"),
        (lambda: infer_request(a_window(), "small@1", model_version="1"), MalformedRequestError, "version already"),
        (
            _with(extra=np.zeros(1)),
            MalformedRequestError,
            "unknown input 'extra' for windows; use one of observed",
        ),
        (
            _bars_with(mask=np.ones(1, np.bool_)),
            MalformedRequestError,
            "unknown input 'mask' for bars; use",
        ),
        (_without_input("scale", a_window), MalformedRequestError, "input 'scale' is missing; windows need it"),
        (_without_input("open", lambda: bars(a_panel())), MalformedRequestError, "input 'open' is missing; bars"),
        (_without_input("symbol", lambda: bars(a_panel())), MalformedRequestError, "input 'symbol' is missing; bars"),
        (_without_input("known", a_window), WindowShapeError, "known is float32 of shape [1, 80, 0], the model reads"),
        (_with(location=np.zeros(1, np.float32)), MalformedRequestError, "location: has datatype 'FP32', need FP64"),
        (
            _with(scale=np.ones((2, 1))),
            MalformedRequestError,
            "scale: has shape [2, 1], need 1 or 2 axes, the first of",
        ),
        (
            _with(mask=np.ones((1, 2, 3), np.bool_)),
            MalformedRequestError,
            "mask: has shape [1, 2, 3], need [1, 60, 23]",
        ),
        (_bars_with(low=np.ones((1, 2, 3))), MalformedRequestError, "low: has shape [1, 2, 3], need [1, 2, 200]"),
        (_bars_with(date=np.zeros((1, 3), np.int64)), MalformedRequestError, "date: has shape [1, 3], need [1, 200]"),
        (
            _bars_with(date=np.full((1, 200), 1 << 60)),
            MalformedRequestError,
            f"date: {1 << 60} is not a day; send days",
        ),
        (
            _bars_with(future_date=np.zeros(3, np.int64)),
            MalformedRequestError,
            "future_date: has shape [3], need 2 axes",
        ),
        (
            _shape(1, 60),
            MalformedRequestError,
            "observed: has shape [1, 60], need 3 axes: rows, ses",
        ),
        (_changed(_set("datatype", "FP16")), MalformedRequestError, "observed: has datatype 'FP16'; inputs have BOOL"),
        (_changed(_set("name", "mask")), MalformedRequestError, "input 'mask' is sent twice"),
        (
            _changed(lambda made: made.raw_input_contents.pop()),
            MalformedRequestError,
            "raw_input_contents: have 7, need 8, one for each input",
        ),
        (
            _changed(lambda made: made.inputs[0].contents.fp32_contents.append(1.0)),
            MalformedRequestError,
            "observed: has both contents and raw_input_contents; send one of them",
        ),
        (
            _changed(lambda made: made.inputs[0].contents.fp64_contents.append(1.0), is_raw=False),
            MalformedRequestError,
            "observed: has fp64_contents, need fp32_contents for FP32",
        ),
        (
            _changed(lambda made: made.inputs[0].contents.fp32_contents.append(1.0), is_raw=False),
            MalformedRequestError,
            "observed: have 5524 bytes, need 5520",
        ),
        (
            _changed(lambda made: made.inputs[0].parameters["shared_memory_region"].CopyFrom(pb.InferParameter())),
            MalformedRequestError,
            "observed: parameters shared_memory_region of an input are not supported",
        ),
        (
            lambda: infer_request(a_window(), outputs=wanting("value")),
            MalformedRequestError,
            "unknown output 'value'; use one of values, returns, prices",
        ),
        (
            lambda: infer_request(a_window(), outputs=wanting("ranks")),
            MalformedRequestError,
            "unknown output 'ranks'; use one of values, returns, prices, as_of",
        ),
        (
            lambda: infer_request(a_window(), outputs=wanting("error", "error")),
            MalformedRequestError,
            "named twice",
        ),
        (
            lambda: infer_request(a_window(), parameters=parameters(priority=3)),
            MalformedRequestError,
            "unknown parameter 'priority'; these inputs allow schema_hash",
        ),
        (
            lambda: infer_request(bars(a_panel()), parameters=parameters(gap_policy="fill")),
            MalformedRequestError,
            "parameter gap_policy: 'fill' is unknown; use one of refuse, mask, ignore",
        ),
        (
            lambda: infer_request(bars(a_panel()), parameters=parameters(allow_incomplete_last_bar="yes")),
            MalformedRequestError,
            "parameter allow_incomplete_last_bar: has string_param, need bool_param",
        ),
        (
            lambda: infer_request(a_window(), parameters=parameters(schema_hash="another")),
            FeatureMismatchError,
            "made with schema 'another'",
        ),
        (lambda: infer_request(bars(a_panel().last(5))), TooFewBarsError, "AAPL: have 5"),
        (_bars_with(symbol=np.array([[b"A", b"\xff"]], np.object_)), MalformedRequestError, "b'\\xff' is not UTF-8"),
        (_bars_with(symbol=np.array([[b"A", b"B" * 300]], np.object_)), RequestTooLargeError, "has 300 characters"),
        (lambda: infer_request(a_window(), id="7" * 300), RequestTooLargeError, "id: '77777"),
        (_shape(1, 4000, 4000), RequestTooLargeError, "observed: values: have 16000000, at most"),
        (_shape(-1, 60, 23), MalformedRequestError, "no length may be below 0"),
        (_shape(5000, 1, 1), RequestTooLargeError, "rows: have 5000, at most 4096"),
        (_shape(*[1] * 9), RequestTooLargeError, "observed: axes: have 9, at most 8"),
    ],
)
def test_what_is_wrong_is_refused_by_name(
    calls: PredictionCalls, request_of: Callable[[], pb.ModelInferRequest], kind: type[QuantraError], words: str
) -> None:
    error = refusal(calls, request_of())
    assert words in error.message
    assert type(error) is kind


def test_bytes_that_are_no_request_are_refused(calls: PredictionCalls) -> None:
    error = calls.handle("ModelInfer", b"\xff\xff garbage", CallContext()).exception()
    assert isinstance(error, MalformedRequestError)
    assert "are not a inference.ModelInferRequest; encode it from inference.proto" in error.message


def test_raw_texts_that_do_not_fit_their_lengths_are_refused(calls: PredictionCalls) -> None:
    request = infer_request(bars(a_panel()))
    place = [one.name for one in request.inputs].index("symbol")
    request.raw_input_contents[place] = b"\x04\x00\x00\x00AAPL\xff\x00\x00\x00IBM"
    assert "symbol: raw values do not match their lengths" in refusal(calls, request).message


# --- sizes


def test_a_large_request_is_taken_apart_without_reading_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_counts, "SMALL", 0)
    convert_value = infer_request(a_window(), is_raw=False).SerializeToString()
    found = read_request(convert_value, MAX_INLINE_PARTS)
    assert {one.body is convert_value for one in found.tensors.values()} == {True}


def test_an_input_of_more_values_than_a_request_may_have_is_refused_by_its_shape() -> None:
    request = pb.ModelInferRequest(model_name="small")
    shape = (1, 1, MAX_CELLS + 1)
    request.inputs.append(pb.ModelInferRequest.InferInputTensor(name="observed", datatype="FP32", shape=shape))
    with pytest.raises(RequestTooLargeError, match="observed: values"):
        read_request(request.SerializeToString())


def test_values_one_by_one_are_counted_on_a_thread_for_it() -> None:
    """Packed values are one field; unpacked ones are a field each, which takes time to skip."""
    unpacked = b"\x35\x00\x00\x80\x3f" * (MAX_INLINE_PARTS + 1)
    head = tensor_of("observed", np.zeros((1, 1, MAX_INLINE_PARTS + 1), np.float32)).SerializeToString()
    contents = b"\x2a" + _varint(len(unpacked)) + unpacked
    body = b"\x2a" + _varint(len(head) + len(contents)) + head + contents
    with pytest.raises(TooManyPartsError):
        read_request(body, MAX_INLINE_PARTS)
    tensor = read_request(body).tensors["observed"]
    assert tensor.decode_float32(tensor.shape).tolist() == [[[1.0] * (MAX_INLINE_PARTS + 1)]]


def test_sixteen_mebibytes_of_numbers_are_refused_by_their_bytes(calls: PredictionCalls) -> None:
    request = infer_request(bars(a_panel()), is_raw=False)
    (date,) = [one for one in request.inputs if one.name == "date"]
    date.contents.int64_contents.extend([0] * (1 << 22))
    error = refusal(calls, request)
    assert isinstance(error, RequestTooLargeError)
    assert error.message.startswith("date: bytes: have 4194")


def test_more_inputs_than_a_request_may_have_are_refused(calls: PredictionCalls) -> None:
    request = pb.ModelInferRequest(inputs=[pb.ModelInferRequest.InferInputTensor(name=str(n)) for n in range(2000)])
    assert re.match(rf"inputs: have \d+, at most {MAX_INPUTS} in one request", refusal(calls, request).message)


def test_a_head_that_would_grow_is_refused_before_it_is_parsed(calls: PredictionCalls) -> None:
    request = infer_request(a_window(), outputs=[pb.ModelInferRequest.InferRequestedOutputTensor()] * 10_000)
    assert f"at most {MAX_HEAD} in one request" in refusal(calls, request).message
    nested = infer_request(a_window())
    nested.inputs[0].shape.extend([0] * 20_000)
    assert "an input without its values: bytes: have 200" in refusal(calls, nested).message
    told = pb.ModelReadyRequest(name="x" * 20_000).SerializeToString()
    assert isinstance(calls.handle("ModelReady", told, CallContext()).exception(), RequestTooLargeError)


def test_more_symbols_in_all_rows_than_a_request_may_have_are_refused_by_their_shape(calls: PredictionCalls) -> None:
    request = pb.ModelInferRequest(model_name="small")
    shape = (2, MAX_ROWS // 2 + 1, 1)
    request.inputs.append(pb.ModelInferRequest.InferInputTensor(name="close", datatype="FP64", shape=shape))
    assert "symbols of all rows" in refusal(calls, request).message


def test_a_small_question_of_many_bytes_is_refused_before_it_is_parsed(calls: PredictionCalls) -> None:
    body = pb.RepositoryIndexRequest(repository_name="x" * MAX_HEAD).SerializeToString()
    assert isinstance(calls.handle("RepositoryIndex", body, CallContext()).exception(), RequestTooLargeError)


def test_more_days_ahead_than_a_panel_may_have_are_refused_by_their_shape(calls: PredictionCalls) -> None:
    request = infer_request(bars(a_panel()), is_raw=False)
    shape = (1, MAX_SESSIONS + 1)
    request.inputs.append(pb.ModelInferRequest.InferInputTensor(name="future_date", datatype="INT64", shape=shape))
    error = refusal(calls, request)
    assert isinstance(error, RequestTooLargeError)
    assert "future_date: sessions" in error.message


def test_many_texts_and_many_inputs_of_many_rows_are_refused_before_they_are_read(calls: PredictionCalls) -> None:
    wide = {"close": np.zeros((1, 20_000, 0)), **{f"static.{n}": np.zeros((1, 20_000), np.object_) for n in range(11)}}
    request = pb.ModelInferRequest(model_name="small", inputs=[tensor_of(*one) for one in wide.items()])
    assert "values of BYTES: have 220000, at most 200000" in refusal(calls, request).message
    deep = {"close": np.zeros((4000, 1, 0)), **{f"static.{n}": np.zeros((4000, 1)) for n in range(60)}}
    request = pb.ModelInferRequest(model_name="small", inputs=[tensor_of(*one) for one in deep.items()])
    assert "rows x inputs: have 244000, at most 200000" in refusal(calls, request).message


def test_the_numbers_of_the_wire_are_read_as_protobuf_reads_them() -> None:
    numbers = [0, 1, 127, 128, 300, 16_000, 1 << 40, (1 << 63) - 1, -1, -(1 << 63)]
    packed = pb.InferTensorContents(int64_contents=numbers).SerializeToString()
    assert decode_varints(packed[2:], "x").tolist() == numbers
    assert decode_varints(b"", "x").tolist() == []
    for broken in (b"\x80", b"\x01\xff", b"\x80" * 10 + b"\x01"):
        with pytest.raises(MalformedRequestError, match="not valid varints"):
            decode_varints(broken, "x")


def test_days_before_1970_are_days_too() -> None:
    sessions = [19620102, 19700101, 19691231, 20000229, 0]
    days = np.array([count_epoch_days(session) for session in sessions])
    expected = ["1962-01-02", "1970-01-01", "1969-12-31", "2000-02-29", "NaT"]
    assert days.astype("datetime64[D]").astype(str).tolist() == expected
    sent = {**bars(recent_bars("AAPL")), "date": days[None, :2]}
    assert tensor_in(sent, "date").decode_sessions((1, 2)).tolist() == [[19620102, 19700101]]


def tensor_in(tensors: dict[str, Values], name: str) -> InputTensor:
    return read_request(infer_request(tensors).SerializeToString()).tensors[name]


# --- model metadata


@pytest.mark.parametrize("model", ["small", "graph", "har", "volatility", "lagged"])
def test_the_outputs_of_an_answer_are_those_of_the_metadata(calls: PredictionCalls, model: str) -> None:
    asked = pb.ModelMetadataRequest(name=model).SerializeToString()
    told = pb.ModelMetadataResponse.FromString(calls.handle("ModelMetadata", asked, CallContext()).result())
    answer = infer(calls, infer_request(bars(a_panel()), model))
    assert [(one.name, one.datatype, len(one.shape)) for one in told.outputs] == [
        (one.name, one.datatype, len(one.shape)) for one in answer.outputs
    ]
    for form, tensor in zip(told.outputs, answer.outputs, strict=True):
        assert all(length in {-1, have} for length, have in zip(form.shape, tensor.shape, strict=True))


def metadata_of(calls: PredictionCalls, model: str) -> pb.ModelMetadataResponse:
    asked = pb.ModelMetadataRequest(name=model).SerializeToString()
    return pb.ModelMetadataResponse.FromString(calls.handle("ModelMetadata", asked, CallContext()).result())


@pytest.mark.parametrize(("model", "levels"), [("small", 1), ("har", 4)])
def test_the_shape_of_the_levels_is_that_which_the_model_reads(calls: PredictionCalls, model: str, levels: int) -> None:
    shapes = {one.name: list(one.shape) for one in metadata_of(calls, model).inputs}
    assert (shapes["location"], shapes["scale"]) == ([-1, levels], [-1, levels])
    config = pb.ModelConfigResponse.FromString(
        calls.handle("ModelConfig", pb.ModelConfigRequest(name=model).SerializeToString(), CallContext()).result()
    ).config
    assert {one.name: list(one.dims) for one in config.input} == shapes


def test_metadata_says_what_goes_with_what_and_what_may_be_left_out(calls: PredictionCalls) -> None:
    told = metadata_of(calls, "small")
    needs = {one.name: {name: needed.string_param for name, needed in one.parameters.items()} for one in told.inputs}
    assert needs["observed"] == {"windows": "required"}
    assert needs["mask"] == {"windows": "optional"}
    assert needs["close"] == {"bars": "required"}
    assert needs["adj_close"] == {"bars": "optional"}
    assert needs["symbol"] == {"bars": "required", "windows": "optional"}
    assert list(told.versions) == ["1", "2"]
    (observed,) = [one for one in told.inputs if one.name == "observed"]
    assert (observed.datatype, list(observed.shape)) == ("FP32", [-1, 60, len(PIPELINE.features.features.observed)])


def test_what_is_required_is_enough(calls: PredictionCalls) -> None:
    for form, tensors in (("windows", a_window()), ("bars", bars(a_panel()))):
        needed = [
            one.name for one in metadata_of(calls, "small").inputs if one.parameters[form].string_param == "required"
        ]
        infer(calls, infer_request({name: tensors[name] for name in needed}))
        for name in needed:
            less = {other: tensors[other] for other in needed if other != name}
            assert isinstance(refusal(calls, infer_request(less)), (MalformedRequestError, WindowShapeError))


def test_covariates_are_inputs_by_their_names(calls: PredictionCalls, service: PredictionService) -> None:
    told = {one.name: one.datatype for one in metadata_of(calls, "covariates").inputs if "." in one.name}
    assert {name.partition(".")[2] for name in told} == {one.name for one in service.model("covariates").covariates}
    assert set(told.values()) == {"FP64", "BYTES"}


def test_the_configuration_marks_inputs_as_optional_and_tells_the_rest(calls: PredictionCalls) -> None:
    asked = pb.ModelConfigRequest(name="small", version="canary").SerializeToString()
    config = pb.ModelConfigResponse.FromString(calls.handle("ModelConfig", asked, CallContext()).result()).config
    assert (config.name, config.max_batch_size) == ("small", 0)
    assert all(one.optional for one in config.input)
    assert [one.name for one in config.input] == [one.name for one in metadata_of(calls, "small").inputs]
    told = {name: one.string_value for name, one in config.parameters.items()}
    assert (told["version"], told["horizons"], told["quantiles"]) == ("2", "[1, 5, 10, 20]", "[0.1, 0.5, 0.9]")


def ready(calls: PredictionCalls, name: str, version: str = "") -> bool:
    asked = pb.ModelReadyRequest(name=name, version=version).SerializeToString()
    return pb.ModelReadyResponse.FromString(calls.handle("ModelReady", asked, CallContext()).result()).ready


def test_a_model_is_ready_if_it_is_served(calls: PredictionCalls) -> None:
    asked = [("small", ""), ("small", "2"), ("small", "canary"), ("small", "3"), ("nothing", "")]
    assert [ready(calls, *one) for one in asked] == [True, True, True, False, False]


def test_the_index_lists_every_version(calls: PredictionCalls, service: PredictionService) -> None:
    told = pb.RepositoryIndexResponse.FromString(calls.handle("RepositoryIndex", b"", CallContext()).result()).models
    assert [(one.name, one.version, one.state) for one in told] == [
        (info.name, str(info.version), "READY") for info in service.models()
    ]


# --- changes


@pytest.mark.parametrize("name", ["RepositoryModelLoad", "RepositoryModelUnload"])
def test_models_are_not_changed_where_everybody_asks(calls: PredictionCalls, name: str) -> None:
    asked = pb.RepositoryModelLoadRequest(model_name="small").SerializeToString()
    error = calls.handle(name, asked, CallContext()).exception()
    assert isinstance(error, PermissionDeniedError)
    assert "--admin-listen" in error.message


def test_models_are_unloaded_and_loaded_again(tmp_path: Path) -> None:
    folder = small_models(tmp_path)
    save_small_artifact(folder / "other" / "1", seed=3)
    changes: list[None] = []
    with ExitStack() as stack:
        service = stack.enter_context(PredictionService.open(folder))
        admin = AdminCalls(service.served, lambda _: changes.append(None))
        stack.callback(admin.close)
        calls = PredictionCalls(service)
        stack.callback(calls.close)

        def change(name: str, request: Any) -> "Future[bytes]":
            return admin.handle(name, request.SerializeToString(), CallContext())

        dependents = {"unload_dependents": pb.ModelRepositoryParameter(bool_param=False)}
        change(
            "RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="other", parameters=dependents)
        ).result()
        assert not ready(calls, "other")
        index = admin.handle("RepositoryIndex", b"", CallContext()).result()
        assert [one.name for one in pb.RepositoryIndexResponse.FromString(index).models] == ["small"]
        change("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="other")).result()
        assert ready(calls, "other")
        save_small_artifact(folder / "other" / "2", seed=4)
        change("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="other@2")).result()
        assert ready(calls, "other", "2")
        assert len(changes) == 3
        config = {"config": pb.ModelRepositoryParameter(string_param="{}")}
        error = change(
            "RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="x", parameters=config)
        ).exception()
        assert isinstance(error, MalformedRequestError)
        assert isinstance(
            change("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="x")).exception(), ModelNotFoundError
        )


# --- other clients' stubs


def test_our_messages_take_no_name_in_the_default_pool() -> None:
    """Other clients register their messages there, which works once per process."""
    assert pb.ModelInferRequest.DESCRIPTOR.full_name == "inference.ModelInferRequest"
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("inference.ModelInferRequest")


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + _varint(number >> 7)
