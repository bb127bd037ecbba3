"""Memory use of a request is bounded by its size in bytes."""

import gc
import tracemalloc
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import grpc
import numpy as np
import pytest
from artifacts import recent_bars, save_small_artifact, small_artifact, small_model, small_models
from canned_service import CannedService, forecast_of
from ensembles import ensemble_of, manifest_of
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from raw_http2 import Connection, message
from serving import serving

from predictor import artifact
from predictor._pb import prediction_pb2 as pb
from predictor.bars import BarPanel, tables
from predictor.call_context import NEVER, CallContext
from predictor.calls import PredictionCalls
from predictor.errors import BarsError, MalformedRequestError, QuantraError, RequestTooLargeError, TooFewBarsError
from predictor.forecast import Forecast
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import ExplanationQuery, GapPolicy, Instance
from predictor.model import Predictor
from predictor.service import PredictionService
from predictor.wire import instances
from predictor.wire.limits import MAX_INSTANCES, MAX_ROWS
from predictor.wire.request_counts import MAX_COUNTS, SMALL, TooManyPartsError, count_parts, parse_small

LARGEST = 16 << 20
"""Size of a request in bytes."""
SYMBOLS = 2000
DAYS = recent_bars("AAPL").sessions
LAST = int(DAYS[-1])
SOON_S = 30
TIMES = 20
"""Largest memory use of an empty request, as a multiple of its size."""


def panel(sessions: Sequence[int], symbols: int = SYMBOLS) -> BarPanel:
    prices = np.full((symbols, len(sessions)), 10.0)
    return BarPanel(
        symbols=tuple(f"S{row}" for row in range(symbols)),
        sessions=np.array(sessions, np.int32),
        **dict.fromkeys(("open", "high", "low", "close", "volume"), prices),
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Predictor]:
    folder = tmp_path_factory.mktemp("joint")
    stored = {str(seed): artifact.load(save_small_artifact(folder / str(seed), seed=seed)) for seed in (1, 2)}
    networks = {kind: small_model(small_artifact(kind)) for kind in ("lstm", "graph")}
    return {**networks, "ensemble": ensemble_of(manifest_of(stored), stored)}


def peak(work: Callable[[], object]) -> int:
    """Peak bytes that Python and numpy held; torch's inputs are as large as numpy's."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def too_few(model: Predictor, instance: Instance, *, explain: bool) -> None:
    if explain:
        with pytest.raises(TooFewBarsError):
            model.explain(ExplanationQuery(instance=instance, symbols=("S0",)), AFTER_ALL_SESSIONS, NEVER)
    else:
        assert isinstance(model.predict([instance], AFTER_ALL_SESSIONS, NEVER)[0], TooFewBarsError)


@pytest.mark.parametrize("explain", [False, True], ids=["predict", "explain"])
@pytest.mark.parametrize(
    ("policy", "sessions"),
    [
        (GapPolicy.REFUSE, [LAST]),
        (GapPolicy.MASK, [LAST]),
        (GapPolicy.MASK, [20000103, LAST]),
        (GapPolicy.MASK, DAYS[-29::2].tolist()),
        (GapPolicy.IGNORE, [LAST]),
        (GapPolicy.IGNORE, [20000103, LAST]),
        (GapPolicy.IGNORE, [20000103, *DAYS[-28:].tolist()]),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["lstm", "graph", "ensemble"])
def test_a_few_sessions_of_many_symbols_stop_accepting_than_they_are(
    models: dict[str, Predictor], kind: str, policy: GapPolicy, sessions: list[int], *, explain: bool
) -> None:
    instance = Instance(input=panel(sessions), gap_policy=policy)
    size = instances.encode(instance).ByteSize()
    assert peak(lambda: too_few(models[kind], instance, explain=explain)) < TIMES * size


def test_sessions_years_apart_take_what_as_many_in_a_row_take(models: dict[str, Predictor]) -> None:
    """The same number of bars, in a row and with a gap of years."""
    whole = DAYS[-60:].tolist()
    apart = [20000103, *whole[1:]]

    def ask(sessions: list[int]) -> int:
        asked = Instance(input=panel(sessions, 300), gap_policy=GapPolicy.MASK)
        return peak(lambda: isinstance(models["lstm"].predict([asked], AFTER_ALL_SESSIONS, NEVER)[0], Forecast))

    ask(whole)
    assert ask(apart) < 1.1 * ask(whole)


def test_refusing_many_symbols_looks_at_each_once(
    models: dict[str, Predictor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Computing the panel's `present` once per symbol made ten thousand symbols take ten seconds."""
    bars = panel(DAYS[-60::2].tolist(), 500)
    looked: list[int] = []
    present = BarPanel.present.fget
    assert present is not None

    def counted(self: BarPanel) -> object:
        looked.append(len(self.symbols))
        return present(self)

    monkeypatch.setattr(BarPanel, "present", property(counted))
    asked = Instance(input=bars, gap_policy=GapPolicy.MASK)
    assert isinstance(models["lstm"].predict([asked], AFTER_ALL_SESSIONS, NEVER)[0], QuantraError)
    assert len(looked) < 10


# --- files


def test_a_file_of_single_bars_is_no_huge_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A different symbol and date in each row would make a panel of rows squared."""
    monkeypatch.setattr(tables, "MAX_UNCHECKED_CELLS", 1000)
    rows = [f"S{k},{day},1,1,1,1,1" for k, day in enumerate(DAYS.tolist())]
    path = tmp_path / "bars.csv"
    path.write_text("\n".join(["symbol,date,open,high,low,close,volume", *rows]))
    message = (
        r"bars.csv has 200 rows for 200 symbols on 200 dates, so that fewer than one in 100 .* into separate files"
    )
    with pytest.raises(BarsError, match=message):
        BarPanel.read(path)
    monkeypatch.setattr(tables, "MAX_UNCHECKED_CELLS", 40_000)
    assert BarPanel.read(path).close.shape == (200, 200)


# --- bytes


def field(message: type[Message], name: str, content: bytes = b"") -> bytes:
    """A length-delimited field in wire format."""
    number, length, size = message.DESCRIPTOR.fields_by_name[name].number, len(content), b""
    while length > 0x7F:
        size, length = size + bytes([length & 0x7F | 0x80]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + content


def nested_instance(*names: str, content: bytes) -> bytes:
    """An instance with the content in nested fields."""
    kinds: list[type[Message]] = [
        pb.PredictRequest,
        pb.Instance,
        {"covariates": pb.Covariates, "window": pb.FeatureWindow}.get(names[1], pb.BarPanel),
    ]
    for kind, name in reversed(list(zip(kinds, names, strict=False))):
        content = field(kind, name, content)
    return content


def filled(part: bytes) -> bytes:
    return part * ((LARGEST - 100) // len(part))


EMPTIEST = {
    "instances": filled(field(pb.PredictRequest, "instances")),
    "instances of bars": filled(nested_instance("instances", "bars", content=b"")),
    "symbols": nested_instance("instances", "bars", content=filled(field(pb.BarPanel, "symbols"))),
    "sessions": nested_instance(
        "instances", "bars", content=field(pb.BarPanel, "session_yyyymmdd", b"\x01" * (LARGEST - 100))
    ),
    "prices": nested_instance(
        "instances", "window", content=field(pb.FeatureWindow, "anchor_price", bytes(LARGEST - 100))
    ),
    "covariates": nested_instance("instances", "covariates", content=filled(field(pb.Covariates, "observed"))),
    "scalars twice": nested_instance("instances", "bars", content=filled(b"\x68\x01")),
    "fields of no name": filled(b"\xf8\x3f\x01"),
}
OWN = {
    "symbols": "BarPanel.symbols",
    "sessions": "BarPanel.session_yyyymmdd",
    "prices": "FeatureWindow.anchor_price",
    "covariates": "Covariates.observed",
}
"""Excesses of one instance fail only that instance."""


@pytest.mark.parametrize("what", [what for what in EMPTIEST if what not in OWN])
def test_the_largest_request_of_the_emptiest_content_is_refused_before_it_is_parsed(what: str) -> None:
    with pytest.raises(RequestTooLargeError):
        count_parts(EMPTIEST[what], pb.PredictRequest)


@pytest.mark.parametrize("what", OWN)
def test_an_instance_of_the_emptiest_content_is_refused_alone_and_before_it_is_parsed(what: str) -> None:
    good = instances.encode(Instance(input=panel(DAYS[-30:].tolist(), 3)))
    body = pb.PredictRequest(instances=[good]).SerializeToString()
    counted = count_parts(body + EMPTIEST[what], pb.PredictRequest)
    place, error = counted.instances
    assert isinstance(place, slice)
    assert pb.Instance.FromString(body[place]) == good
    assert isinstance(error, RequestTooLargeError)
    assert error.metadata["field"] == OWN[what]
    assert counted.rows == 3


def test_counting_stops_at_the_first_instance_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting four million blocked other requests for seconds."""
    monkeypatch.setattr("predictor.wire.request_counts.MAX_PARTS", MAX_INSTANCES + 2)
    with pytest.raises(RequestTooLargeError, match=f"instances: have more than {MAX_INSTANCES}"):
        count_parts(EMPTIEST["instances"], pb.PredictRequest, MAX_INSTANCES + 1)


def test_a_group_hides_nothing_from_the_count() -> None:
    body = b"\xfb\x3f\xfc\x3f" + EMPTIEST["instances"]
    with pytest.raises(MalformedRequestError, match=r"are not a quantra\.v1\.PredictRequest"):
        count_parts(body, pb.PredictRequest)


def test_a_request_has_a_limit_of_rows_in_however_many_instances() -> None:
    one = instances.encode(Instance(input=panel([LAST], 10_000)))
    with pytest.raises(RequestTooLargeError, match=f"all instances: have more than {MAX_ROWS}, at most {MAX_ROWS}"):
        count_parts(pb.PredictRequest(instances=[one] * 30).SerializeToString(), pb.PredictRequest)


def test_empty_targets_of_an_explanation_are_refused_too() -> None:
    with pytest.raises(RequestTooLargeError, match=r"ExplainRequest\.targets"):
        count_parts(filled(field(pb.ExplainRequest, "targets")), pb.ExplainRequest)


def test_the_largest_watch_lists_are_taken() -> None:
    """The largest allowed number of instances with enough bars, and one panel of as many symbols."""
    one = instances.encode(Instance(input=panel(DAYS[-30:].tolist(), 3), request_id="x" * 20)).SerializeToString()
    many = field(pb.PredictRequest, "instances", one) * MAX_INSTANCES
    whole = instances.encode(Instance(input=panel(DAYS[-30:].tolist(), 10_000))).SerializeToString()
    for body, rows in ((many, 3 * MAX_INSTANCES), (field(pb.PredictRequest, "instances", whole), 10_000)):
        assert len(body) > 10 << 20
        assert count_parts(body, pb.PredictRequest).rows == rows


@pytest.mark.parametrize("ending", [b"\x0a\xff\xff\xff", b"\x0f", b"\xff" * 11, b"\x0a", b"\x00\x00"], ids=repr)
def test_bytes_that_are_no_message_are_told_from_one(ending: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        count_parts(field(pb.PredictRequest, "instances", b"") + ending, pb.PredictRequest)


def test_an_instance_whose_bytes_are_none_fails_alone() -> None:
    good = field(pb.PredictRequest, "instances", b"")
    counted = count_parts(good + field(pb.PredictRequest, "instances", b"\x0f") + good, pb.PredictRequest)
    assert [type(one) for one in counted.instances] == [slice, MalformedRequestError, slice]


def test_what_is_counted_is_what_is_parsed() -> None:
    one = instances.encode(Instance(input=panel(DAYS[-30:].tolist(), 7), request_id="x"))
    request = pb.PredictRequest(model="m@1", instances=[one] * 5)
    body = request.SerializeToString()
    counted = count_parts(body, pb.PredictRequest)
    assert pb.PredictRequest.FromString(counted.head) == pb.PredictRequest(model="m@1")
    assert [pb.Instance.FromString(body[p]) for p in counted.instances if isinstance(p, slice)] == [one] * 5
    assert counted.rows == 35
    assert count_parts(body, pb.PredictRequest, counted.parts) == counted
    with pytest.raises(TooManyPartsError):
        count_parts(body, pb.PredictRequest, counted.parts - 1)


def test_every_repeated_field_of_a_request_has_a_limit() -> None:
    requests = [method.input_type for method in pb.DESCRIPTOR.services_by_name["PredictionService"].methods]
    found: set[str] = set()
    while requests:
        kind = requests.pop()
        found |= {f"{kind.name}.{one.name}" for one in kind.fields if one.is_repeated}
        requests += [one.message_type for one in kind.fields if one.message_type is not None]
    assert found == MAX_COUNTS.keys()


def test_the_server_refuses_the_emptiest_request_as_too_large(tmp_path: Path) -> None:
    with (
        PredictionService.open(small_models(tmp_path), device="cpu") as service,
        serving(service) as served,
        grpc.insecure_channel(served.target) as channel,
    ):
        call = channel.unary_unary("/quantra.v1.PredictionService/Predict")
        with pytest.raises(grpc.RpcError) as refused:
            call(EMPTIEST["instances of bars"], timeout=30)
    status = rpc_status.from_call(cast("grpc.Call", refused.value))
    assert status is not None
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.metadata["field"]) == ("REQUEST_TOO_LARGE", "instances")


def plain_and_counted(body: bytes, monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[bytes, bytes]:
    """Responses to a request on the path for small requests and on the other one."""
    with PredictionService.open(small_models(folder), device="cpu") as service:
        calls = PredictionCalls(service)
        plain = calls.handle("Predict", body, CallContext()).result(SOON_S)
        with monkeypatch.context() as patched:
            patched.setattr("predictor.wire.request_counts.SMALL", 0)
            counted = calls.handle("Predict", body, CallContext()).result(SOON_S)
        calls.close()
    return plain, counted


def test_a_small_request_is_answered_as_one_that_is_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    two = replace(recent_bars("AAPL"), symbols=("OTHER",))
    questions = [Instance(input=bars, request_id=str(k)) for k, bars in enumerate((recent_bars("AAPL"), two))]
    bad = pb.Instance(request_id="bad", bars=pb.BarPanel(symbols=["A", "B"]))
    request = pb.PredictRequest(instances=[instances.encode(questions[0]), bad, instances.encode(questions[1])])
    plain, counted = plain_and_counted(request.SerializeToString(), monkeypatch, tmp_path)
    results = pb.PredictResponse.FromString(plain).results
    assert [(one.request_id, one.WhichOneof("outcome")) for one in results] == [
        ("0", "forecast"),
        ("bad", "error"),
        ("1", "forecast"),
    ]
    assert plain == counted


def test_a_small_request_of_more_instances_than_are_parsed_at_once_is_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    body = pb.PredictRequest(instances=[pb.Instance()] * (MAX_INSTANCES + 1)).SerializeToString()
    assert len(body) < SMALL
    with pytest.raises(RequestTooLargeError, match=f"more than {MAX_INSTANCES}"):
        plain_and_counted(body, monkeypatch, tmp_path)


def test_a_small_tensor_of_many_axes_is_refused() -> None:
    window = pb.FeatureWindow(symbols=["A"], observed=pb.Tensor(type=pb.DATA_TYPE_FLOAT32, shape=[1] * 10_000))
    with pytest.raises(MalformedRequestError, match=r"has shape \[1, 1, 1, 1, 1, 1, 1, 1, 1\], need 3 axes"):
        instances.decode(pb.Instance(window=window))


def empty_window(symbols: Sequence[str], features: Sequence[str] = ()) -> pb.Instance:
    """Windows of no session and no feature, which can be decoded."""
    narrow, flat = (pb.Tensor(type=pb.DATA_TYPE_FLOAT32, shape=[len(symbols), *axes]) for axes in ([0, 0], [0]))
    levels = pb.Tensor(type=pb.DATA_TYPE_FLOAT64, shape=[len(symbols), 0])
    window = pb.FeatureWindow(symbols=symbols, features=features, static=flat, location=levels, scale=levels)
    window.observed.CopyFrom(narrow)
    window.known.CopyFrom(narrow)
    return pb.Instance(window=window)


ONE = np.ones(1).tobytes()
MANY_TEXTS = {
    "features": empty_window(["A"], [f"f{k}" for k in range(2000)]),
    "symbols": empty_window([f"S{k}" for k in range(2000)]),
    "categories": pb.Instance(
        bars=pb.BarPanel(
            symbols=["A"], session_yyyymmdd=[20200102], open=ONE, high=ONE, low=ONE, close=ONE, volume=ONE
        ),
        covariates=pb.Covariates(categories=[pb.CovariateTexts(name=f"c{k}", values=["x"]) for k in range(1300)]),
    ),
}


@pytest.mark.parametrize("kind", MANY_TEXTS)
def test_small_requests_with_many_texts_wait_as_bytes(kind: str) -> None:
    body = pb.PredictRequest(instances=[MANY_TEXTS[kind]]).SerializeToString()
    assert 0.7 * SMALL < len(body) <= SMALL
    canned = CannedService(forecast_of)
    canned.predictions_released.clear()
    calls = PredictionCalls(canned)
    calls.handle("Predict", body, CallContext())  # what is created once
    tracemalloc.start()
    try:
        answers = [calls.handle("Predict", body, CallContext()) for _ in range(20)]
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        canned.predictions_released.set()
    assert grown < len(answers) * 2 * len(body)
    calls.close()


@pytest.mark.parametrize("more", [b"", b"\x0a\x01x"], ids=["as it is", "its id twice"])
def test_a_request_that_says_something_twice_is_not_plain(more: bytes) -> None:
    body = pb.PredictStreamRequest(request_id="1", timeout_s=1).SerializeToString() + more
    assert (parse_small(body, pb.PredictStreamRequest) is None) == bool(more)
    assert parse_small(body.ljust(SMALL + 1, b"\0"), pb.PredictStreamRequest) is None


# --- garbage


def garbage_of(call: Callable[[], object]) -> list[object]:
    """The futures and large bytes that a call leaves to the garbage collector."""
    call()  # what is created once
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        call()
        gc.collect()
        sizes = [len(one) for one in gc.garbage if isinstance(one, bytes | bytearray)]
        return [*(one for one in gc.garbage if isinstance(one, Future)), *(size for size in sizes if size > 500)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def predict_body(kind: str) -> bytes:
    one, few = (instances.encode(Instance(input=bars)) for bars in (recent_bars(), recent_bars().last(3)))
    bodies = {
        "good": pb.PredictRequest(instances=[one]).SerializeToString(),
        "one bad among good ones": pb.PredictRequest(instances=[one, few, one]).SerializeToString(),
        "one that cannot be decoded": pb.PredictRequest(
            instances=[one, pb.Instance(bars=pb.BarPanel(symbols=["A"], open=bytes(7)))]
        ).SerializeToString(),
        "an unknown model": pb.PredictRequest(model="none", instances=[one]).SerializeToString(),
        "no instance": b"",
        "empty instances": b"\x12\x00" * 300_000,
        "malformed": b"\xff" * 300_000,
    }
    return bodies[kind]


KINDS = [
    "good",
    "one bad among good ones",
    "one that cannot be decoded",
    "an unknown model",
    "no instance",
    "empty instances",
    "malformed",
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_call_is_freed_without_the_garbage_collector(kind: str, tmp_path: Path) -> None:
    with (
        PredictionService.open(small_models(tmp_path / "models")) as service,
        closing(PredictionCalls(service)) as calls,
    ):
        body = predict_body(kind)

        def call() -> None:
            calls.handle("Predict", body, CallContext()).exception(SOON_S)

        assert garbage_of(call) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_to_the_server_is_freed_without_the_garbage_collector(kind: str, tmp_path: Path) -> None:
    content = message(predict_body(kind))
    with (
        PredictionService.open(small_models(tmp_path / "models")) as service,
        serving(service) as running,
        Connection(int(running.target.rpartition(":")[2])) as connection,
    ):

        def call() -> None:
            stream = connection.call("/quantra.v1.PredictionService/Predict")
            connection.send(stream, content, last=True)
            connection.finish(stream)

        assert garbage_of(call) == []
