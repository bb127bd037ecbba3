"""What `benchmarks.faults` sends and counts, against a real server in this process and by hand."""

import asyncio
import io
import os
import pickle
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import grpc
import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from canned_service import CannedService, forecast_of
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from serving import Served, serving

from benchmarks.faults import __main__ as benchmark
from benchmarks.faults import forgery, http2, talks
from benchmarks.faults.__main__ import findings, runs_of
from benchmarks.faults.calls import LIST, PREDICT, STREAM, Ended, ask_once, retry_of
from benchmarks.faults.cases import Case, bar, changed, fault_of
from benchmarks.faults.damaged import cut as shortened
from benchmarks.faults.damaged import flipped
from benchmarks.faults.deadlines import Wait, judged
from benchmarks.faults.door import NAMES
from benchmarks.faults.findings import Finding, lines
from benchmarks.faults.flushed import Step, parsed, unflushed, unreadable
from benchmarks.faults.inputs import among, refused_alone
from benchmarks.faults.kserve import KServe
from benchmarks.faults.mix import RECONNECTED_AFTER, Cancelled, Conversed, Done, Late, Load, Unary
from benchmarks.faults.mutants import CHANGES, delimited, grouped, mutants, splice, tag, truncate, varint
from benchmarks.faults.names import builders, stamps
from benchmarks.faults.names import call as call_by_name
from benchmarks.faults.reflected import filled, methods
from benchmarks.faults.reloads import answers_of
from benchmarks.faults.reloads import judged as judged_models
from benchmarks.faults.served import NotServedError, Vitals
from benchmarks.faults.served import serving as serving_process
from benchmarks.faults.soak import Look, memory_rows, repeated, time_rows
from benchmarks.faults.speech import Native
from benchmarks.faults.target import Secured, Target
from benchmarks.faults.told import SYMBOL, TOKEN, VALUE, held, marked_bars, marks
from benchmarks.faults.transport import GZIP, Packed, burst, messages, packed, send
from benchmarks.report import at_most, shown, unmeasured
from predictor._pb import inference_pb2
from predictor._pb import prediction_pb2 as pb
from predictor.bars import BarPanel
from predictor.instance import Instance
from predictor.server.guard import Guard
from predictor.server.issuing import Issued
from predictor.server.tokens import Tokens
from predictor.wire import instances
from predictor.wire.kserve import bars
from predictor.wire.kserve.choices import choices_of
from predictor.wire.kserve.requests import read_request

VALID = pb.GetModelRequest(model="stock@champion").SerializeToString()
OTHER = pb.ExplainRequest(model="another", tolerance=0.25).SerializeToString()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(CannedService(forecast_of)) as running:
        yield running


def port_of(served: Served) -> int:
    return int(served.target.rpartition(":")[2])


# --- messages


def test_the_same_seed_gives_the_same_mutants() -> None:
    first, again, other = (mutants(Random(seed), [VALID], [OTHER]) for seed in (1, 1, 2))
    drawn = [next(first) for _ in range(50)]
    assert drawn == [next(again) for _ in range(50)]
    assert drawn != [next(other) for _ in range(50)]


def test_hardly_a_mutant_is_what_it_was_made_from() -> None:
    source = mutants(Random(3), [VALID], [OTHER])
    assert sum(next(source) == VALID for _ in range(300)) < 15


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_every_change_changes_a_message_and_takes_an_empty_one(change: object) -> None:
    assert callable(change)
    changed, empty = bytearray(VALID), bytearray()
    for seed in range(20):
        change(Random(seed), changed, [OTHER])
        change(Random(seed), empty, [OTHER])
    assert bytes(changed) != VALID


def test_a_cut_message_is_the_beginning_of_the_whole() -> None:
    body = bytearray(VALID)
    truncate(Random(0), body, [OTHER])
    assert len(body) < len(VALID)
    assert VALID.startswith(body)


def test_a_spliced_message_ends_as_the_other_does() -> None:
    body = bytearray(VALID)
    splice(Random(1), body, [OTHER])
    begun = next(n for n in range(len(VALID), -1, -1) if body.startswith(VALID[:n]))
    assert OTHER.endswith(body[begun:])


def test_groups_are_marked_at_both_ends_or_broken() -> None:
    starts = ends = 0
    for seed in range(40):
        body = bytearray()
        grouped(Random(seed), body, [OTHER])
        starts, ends = starts + any(byte & 7 == 3 for byte in body), ends + any(byte & 7 == 4 for byte in body)
    assert starts
    assert ends
    assert starts != ends


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, (1 << 64) - 1])
def test_numbers_are_written_as_protobuf_writes_them(number: int) -> None:
    ours = tag(2, 0) + varint(number)
    signed = number - (1 << 64) if number >> 63 else number
    theirs = pb.Tensor(shape=[signed]).SerializeToString()
    assert theirs == delimited(2, varint(number))
    assert pb.Tensor.FromString(ours).shape == [signed]


def test_the_emptiest_requests_are_what_they_are_called() -> None:
    parsed = {what: body for what, (path, body) in Native().emptiest(9_000).items() if path == PREDICT}
    requests = {what: pb.PredictRequest.FromString(body) for what, body in parsed.items() if what != "groups alone"}
    assert len(requests["empty instances"].instances) == 4500
    assert len(requests["instances of empty bars"].instances) == 2250
    assert requests["instances of empty bars"].instances[7].HasField("bars")
    assert len(requests["one instance of empty symbols"].instances[0].bars.symbols) > 4000
    assert len(requests["packed sessions of one byte"].instances[0].bars.session_yyyymmdd) > 8000
    assert not requests["unknown fields"].ListFields()
    assert len(requests["a group, then empty instances"].instances) > 4000
    assert all(8_000 < len(body) <= 9_000 for body in parsed.values())


def test_every_method_is_told_by_the_server_with_what_it_reads(served: Served) -> None:
    with grpc.insecure_channel(served.target) as channel:
        found = {method.path: method for method in methods(channel)}
    assert found[PREDICT].reads.full_name == "quantra.v1.PredictRequest"
    assert found["/grpc.health.v1.Health/Watch"].gives_many
    assert not found["/grpc.health.v1.Health/Watch"].takes_many
    made = filled(found[PREDICT].reads, Random(1)).SerializeToString()
    assert pb.PredictRequest.FromString(made).instances


# --- half an HTTP/2 client


@pytest.mark.parametrize("number", [0, 30, 126, 127, 128, 254, 255, 5_000, 1 << 20])
def test_header_texts_of_any_length_are_read_as_they_were_written(number: int) -> None:
    headers = {"name": "x" * number, "other": "y"}
    assert http2.decoded(http2.encoded(headers)) == headers


def test_a_whole_request_gets_its_answer(served: Served) -> None:
    with http2.Connection(port_of(served)) as connection:
        stream = connection.call(LIST)
        assert connection.send(stream, http2.message(b""), last=True)
        connection.finish(stream)
    assert (stream.headers[":status"], stream.status, stream.ended) == ("200", "0", "closed")
    assert pb.ListModelsResponse.FromString(bytes(stream.answer[5:])).models[0].name == "canned"


def test_a_request_larger_than_the_first_window_is_sent_whole(served: Served) -> None:
    body = pb.GetModelRequest(model="x" * 3_000_000).SerializeToString()
    with http2.Connection(port_of(served)) as connection:
        stream = connection.call("/quantra.v1.PredictionService/GetModel")
        assert connection.send(stream, http2.message(body), last=True)
        connection.finish(stream)
    assert int(stream.status) == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]


def test_half_a_request_gets_no_answer(served: Served) -> None:
    with http2.Connection(port_of(served), timeout_s=0.3) as connection:
        stream = connection.call(LIST)
        connection.send(stream, b"\0\0\0\0\x09half")
        with pytest.raises(TimeoutError):
            connection.finish(stream)
    assert not stream.ended


def test_with_a_window_of_nothing_an_answer_begins_and_does_not_go_on(served: Served) -> None:
    with http2.Connection(port_of(served), window=0, timeout_s=0.3) as connection:
        stream = connection.call(LIST)
        connection.send(stream, http2.message(b""), last=True)
        with pytest.raises(TimeoutError):
            connection.finish(stream)
    assert stream.headers[":status"] == "200"
    assert not stream.answer


# --- counting


def refusal(*details: AnyMessage) -> bytes:
    return Status(code=8, details=details).SerializeToString()


def test_the_delay_is_read_from_the_details_of_a_refusal() -> None:
    info = AnyMessage()
    info.Pack(RetryInfo(retry_delay=Duration(seconds=2, nanos=500_000_000)))
    assert retry_of(refusal(info)) == 2.5
    assert retry_of(refusal()) is None
    assert retry_of(b"\xff") is None


def test_a_caller_sees_when_to_ask_again() -> None:
    """gRPC's own client could keep the trailer to itself."""
    info = AnyMessage()
    info.Pack(RetryInfo(retry_delay=Duration(nanos=250_000_000)))

    def refused(_body: bytes, context: grpc.ServicerContext) -> bytes:
        context.set_trailing_metadata((("grpc-status-details-bin", refusal(info)), ("grpc-retry-pushback-ms", "250")))
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")

    service, _, method = PREDICT.strip("/").partition("/")
    server = grpc.server(ThreadPoolExecutor(1))
    handlers = {method: grpc.unary_unary_rpc_method_handler(refused)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    end = asyncio.run(ask_once(Target(port), PREDICT, b""))
    server.stop(None)
    assert (end.code, end.retry_s, end.has_pushback) == (grpc.StatusCode.RESOURCE_EXHAUSTED, 0.25, True)


def test_cancelled_is_bare_only_without_a_reason() -> None:
    assert Ended(grpc.StatusCode.CANCELLED).is_bare
    assert not Ended(grpc.StatusCode.CANCELLED, has_details=True).is_bare
    assert not Ended(grpc.StatusCode.RESOURCE_EXHAUSTED).is_bare


@pytest.mark.parametrize(("last_s", "ran"), [(0.02, 0), (0.019, 0), (1.02, 100), (2.02, 200)])
def test_what_ran_for_nobody_follows_from_the_wait_behind_it(last_s: float, ran: int) -> None:
    late = (Ended(grpc.StatusCode.DEADLINE_EXCEEDED),) * 200
    answered = (Ended(grpc.StatusCode.OK),) * 200
    found = judged(200, Wait(0.02, 1.0, ()), Wait(last_s, 1.0, late), Wait(2.02, 3.0, answered))
    assert (found.wrong, found.lost) == (ran, 0)


def answer(*forecasts: tuple[str, bytes]) -> Ended:
    results = [pb.Result(forecast=pb.Forecast(weights_hash=name, values=values)) for name, values in forecasts]
    return Ended(grpc.StatusCode.OK, pb.PredictResponse(results=results).SerializeToString())


def test_an_answer_of_two_models_is_found() -> None:
    one, other = answer(("a", b"1"), ("a", b"2")), answer(("b", b"3"), ("b", b"4"))
    facts_of = Native().facts_of
    known = {facts_of(one.body), facts_of(other.body)}
    of_two, renamed = answer(("a", b"1"), ("b", b"4")), answer(("b", b"1"), ("b", b"2"))
    assert judged_models(map(facts_of, answers_of([one, other, one])), known) == (0, 2)
    assert judged_models(map(facts_of, answers_of([one, of_two, renamed])), known) == (2, 1)


def result(*numbers: float, reason: str = "", code: int = 3, warning: str = "") -> pb.Result:
    """A forecast of these numbers, or an error."""
    if reason:
        return pb.Result(error=pb.Error(code=code, message="what to do", reason=reason))
    values = np.array(numbers).tobytes()
    return pb.Result(forecast=pb.Forecast(symbols=["A"], values=values, warnings=[warning] if warning else []))


REFUSED = Case("a bad bar", pb.Instance(), "BARS_INVALID")
WARNED = Case("a split", pb.Instance(), "", "split or crash")


@pytest.mark.parametrize(
    ("case", "answer", "told"),
    [
        (REFUSED, result(reason="BARS_INVALID"), ""),
        (REFUSED, result(reason="MALFORMED_REQUEST"), "MALFORMED_REQUEST, not BARS_INVALID"),
        (REFUSED, result(reason="BARS_INVALID", code=13), "BARS_INVALID, not BARS_INVALID"),
        (REFUSED, result(0.1), "a forecast, not BARS_INVALID"),
        (REFUSED, pb.Result(), "no outcome"),
        (WARNED, result(0.1, warning="A: split or crash?"), ""),
        (WARNED, result(0.1), "no warning"),
        (WARNED, result(float("nan"), warning="A: split or crash?"), "numbers that are none"),
        (WARNED, result(warning="A: split or crash?"), "numbers that are none"),
        (WARNED, result(reason="BARS_INVALID"), "BARS_INVALID, not a forecast"),
    ],
)
def test_a_wrong_instance_must_come_to_what_was_said_and_never_to_nan(case: Case, answer: pb.Result, told: str) -> None:
    found = fault_of(case, answer)
    assert told in found
    assert bool(found) == bool(told)


def test_the_others_of_a_call_must_be_answered_as_ever() -> None:
    def of(*results: pb.Result) -> Ended:
        return Ended(grpc.StatusCode.OK, pb.PredictResponse(results=results).SerializeToString())

    good, moved, bad, expected = result(0.1), result(0.2), result(reason="BARS_INVALID"), of(result(0.1))
    assert among(REFUSED, of(good, bad, good), 1, 3, expected) == ("", 0)
    assert among(REFUSED, of(moved, bad, bad), 1, 3, expected) == ("", 2)
    assert among(REFUSED, of(good, bad), 1, 3, expected)[0].endswith("2 results")
    assert among(REFUSED, Ended(grpc.StatusCode.INTERNAL), 1, 3, expected)[1] == 2
    assert among(REFUSED, Ended(grpc.StatusCode.UNAVAILABLE), 1, 3, expected) == ("", 0)


def test_a_symbol_that_is_refused_alone_leaves_the_others_as_they_were() -> None:
    error = pb.SymbolError(symbol="A", error=pb.Error(reason="NO_USABLE_SYMBOL"))

    def pair(first: float, second: float, *refusals: pb.SymbolError) -> pb.Forecast:
        return pb.Forecast(symbols=["A", "B"], values=np.array([first, second]).tobytes(), refusals=refusals)

    good, nan = pair(0.1, 0.2), float("nan")
    assert refused_alone(pair(nan, 0.2, error), good, "A")
    assert not refused_alone(pair(nan, 0.3, error), good, "A")
    assert not refused_alone(pair(0.1, 0.2, error), good, "A")
    assert not refused_alone(pair(nan, 0.2), good, "A")


def test_one_bar_is_changed_and_the_instance_that_it_was_made_from_is_not() -> None:
    prices = np.arange(1.0, 7.0).tobytes()
    whole = pb.Instance(bars=pb.BarPanel(symbols=["A", "B"], close=prices, session_yyyymmdd=[1, 2, 3]))
    copy = changed(whole, bar(["close"], 9.0, day=-2, row=1))
    assert np.frombuffer(copy.bars.close).tolist() == [1, 2, 3, 4, 9, 6]
    assert whole.bars.close == prices


def test_every_method_that_takes_a_model_is_asked_for_those_that_are_not_there() -> None:
    services = pb.DESCRIPTOR.services_by_name.values()
    every = {f"/{service.full_name}/{method.name}" for service in services for method in service.methods}
    asked = builders(pb.Instance())
    assert every - set(asked) == {LIST}
    assert all("../x" in str(build("../x")) for build in asked.values())


def test_a_call_of_any_kind_is_made_with_one_message(served: Served) -> None:
    with grpc.insecure_channel(served.target) as channel:
        ends = {
            path.rpartition("/")[2]: call_by_name(channel, path, build("nobody").SerializeToString()).code
            for path, build in builders(pb.Instance()).items()
        }
    assert ends["GetModel"] is grpc.StatusCode.NOT_FOUND
    assert ends["LoadModel"] is grpc.StatusCode.UNIMPLEMENTED
    assert grpc.StatusCode.OK not in ends.values()


def test_a_file_that_is_touched_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"")
    before = stamps(tmp_path)
    os.utime(file, ns=(1, 1))
    assert stamps(tmp_path) != before


def test_messages_that_expand_are_refused_and_sound_ones_are_read(served: Served) -> None:
    """gRPC must stop to expand at the limit; what it calls bytes that are not gzip is its own affair."""
    sent = messages(32 << 20, pb.PredictRequest(model="nobody").SerializeToString())
    found = {one.what: send(port_of(served), one) for one in sent}
    assert found["gzip bomb"] == found["deflate bomb"] == "8"
    assert found["gzip, sound"] == found["deflate, sound"] == "3"
    assert found["gzip that is none"] in sent[4].right
    assert len(sent[0].body) < 1 << 18


def test_a_message_that_nobody_answers_has_no_status() -> None:
    assert not send(1, Packed("x", "gzip", packed(b"", GZIP), frozenset())).isdecimal()


def test_streams_before_the_settings_are_all_answered(served: Served) -> None:
    assert burst(port_of(served), 50) == ["0"] * 50


def finding(*, wrong: int = 0) -> Finding:
    rows = [at_most("seconds", 3.0, 2.0, detail="d"), shown("MiB", 1.0, detail="")]
    return Finding(fault="a fault", done="done", calls=9, wrong=wrong, lost=0, rows=rows)


def test_a_finding_is_read_back_as_it_was_written() -> None:
    assert Finding.from_line(finding().to_line()) == finding()


def test_the_table_names_what_was_missed() -> None:
    assert finding(wrong=2).missed == ("a fault: wrong", "a fault: seconds")
    assert "MISSED wrong; MISSED seconds" in lines(finding(wrong=2))


def test_a_fault_that_cannot_be_tried_is_no_success() -> None:
    untried = Finding(fault="a fault", done="no", calls=0, wrong=0, lost=0, rows=[unmeasured("reloads", "no")])
    assert [row.ok for row in untried.judged()] == [None]
    assert "not measured" in lines(untried)


def test_a_fault_that_breaks_off_is_a_finding_that_says_why(tmp_path: Path) -> None:
    (found,) = findings("no fault", tmp_path, quick=True)
    assert found.lost == 1
    assert "broke off" in found.done
    assert "invalid choice: 'no fault'" in found.done


def test_a_fault_that_does_not_end_is_a_finding_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "QUICK_LONGEST_S", 0.05)
    (found,) = findings("burst", tmp_path, quick=True)
    assert (found.lost, found.done) == (1, "did not end within 0.05 s")


def test_a_server_that_cannot_start_is_told_with_its_log(tmp_path: Path) -> None:
    with (
        pytest.raises(NotServedError, match="unrecognized arguments: --nonsense"),
        serving_process(tmp_path, tmp_path / "log", "--nonsense"),
    ):
        pass


def test_this_process_has_vitals() -> None:
    found = Vitals.of(os.getpid())
    assert found.peak >= found.resident > 1 << 20
    assert found.threads > 0
    assert found.descriptors > 2


# --- files that are damaged or made up


def test_a_flipped_bit_is_one_bit_and_a_cut_file_its_beginning() -> None:
    data = bytes(range(200))
    for seed in range(20):
        turned, cut = flipped(Random(seed), data), shortened(Random(seed), data)
        assert sum((a ^ b).bit_count() for a, b in zip(turned, data, strict=True)) == 1
        assert data.startswith(cut)
        assert len(cut) < len(data)


def test_the_pickle_that_acts_does_what_it_says(tmp_path: Path) -> None:
    bare, archive = tmp_path / "bare", tmp_path / "archive"
    pickle.loads(forgery.acting(bare))  # noqa: S301  it must do harm to prove the point
    torch.load(io.BytesIO(forgery.archive_of(forgery.acting(archive), {})), weights_only=False)
    assert bare.is_dir()
    assert archive.is_dir()


def test_forged_archives_are_what_torch_reads() -> None:
    claims = torch.load(io.BytesIO(forgery.expanded(1 << 40)), weights_only=True)["a"]
    zeros = torch.load(io.BytesIO(forgery.compressed(1 << 20)), weights_only=True)["a"]
    assert claims.shape == (1 << 40,)
    assert len(forgery.expanded(1 << 40)) < 1_000
    assert (zeros.shape, float(zeros.abs().sum())) == ((1 << 18,), 0.0)
    assert len(forgery.compressed(1 << 20)) < 10_000


def test_a_poisoned_weight_is_no_number_and_the_others_are_as_before() -> None:
    sound = {"a": torch.ones(3), "b": torch.ones(2)}
    poisoned = safetensors.torch.load(forgery.not_a_number(safetensors.torch.save(sound)))
    assert sum(int(tensor.isnan().sum()) for tensor in poisoned.values()) == 1
    assert {name: tensor.shape for name, tensor in poisoned.items()} == {"a": (3,), "b": (2,)}


@pytest.mark.parametrize(("what", "data"), list(forgery.lying()))
def test_headers_that_lie_are_none_that_the_library_writes(what: str, data: bytes) -> None:
    with pytest.raises((safetensors.SafetensorError, ValueError)):
        safetensors.torch.load(data)
    assert what


# --- what is on the disk before it has its name

TRACE = """\
7 write(3</w/.draft/a>, "x", 1) = 1
7 fsync(3</w/.draft/a>) = 0
7 write(3</w/.draft/b>, "x", 1) = 1
8 rename("/w/.draft", "/w/other") = -1 ENOENT (No such file or directory)
7 fsync(4</w/.draft>) = 0
7 rename("/w/.draft", "{target}") = 0
"""


def test_what_is_not_flushed_before_a_rename_is_named(tmp_path: Path) -> None:
    target = tmp_path / "made"
    target.mkdir()
    for name in "ab":
        (target / name).touch()
    steps = list(parsed(TRACE.format(target=target).splitlines()))
    assert unflushed(steps, target) == ["b", "the name of made"]
    flushed_b = Step("flushed", "/w/.draft/b")
    assert unflushed([*steps[:-1], flushed_b, steps[-1], Step("flushed", str(tmp_path))], target) == []
    assert unflushed([*steps, flushed_b], target) == ["b", "the name of made"]
    assert unflushed(steps[:-1], target) == ["made was written under its own name"]


def test_what_others_cannot_read_is_named(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir(mode=0o755)
    (made / "a").touch(mode=0o600)
    (made / "b").touch(mode=0o644)
    assert unreadable(made) == ["a: 0600"]


# --- the doors


def panel(symbols: int = 2, sessions: int = 3) -> pb.BarPanel:
    values = np.arange(1.0, symbols * sessions + 1).tobytes()
    made = pb.BarPanel(symbols=[f"S{row}" for row in range(symbols)], gap_policy=pb.GAP_POLICY_MASK, calendar="XNYS")
    made.session_yyyymmdd.extend(range(20240102, 20240102 + sessions))
    for name in ("open", "high", "low", "close", "volume"):
        setattr(made, name, values)
    return made


def test_the_public_protocol_asks_about_the_same_bars() -> None:
    sent = pb.Instance(bars=panel())
    request = read_request(KServe().request(sent, sent))
    arrays, choices = bars.read_bars(request.tensors), choices_of(request.head, are_bars=request.are_bars)
    places = bars.places_of(arrays)
    told = [bars.instance_of(arrays, row, place, choices) for row, place in enumerate(places)]
    expected = instances.decode(sent)
    assert len(told) == 2
    for one in told:
        assert isinstance(one, Instance)
        assert isinstance(one.input, BarPanel)
        assert one.gap_policy == expected.gap_policy
        assert (one.input.symbols, one.input.calendar) == (expected.input.symbols, "XNYS")
        assert one.input.sessions.tolist() == list(sent.bars.session_yyyymmdd)
        assert one.input.close.tobytes() == sent.bars.close


def test_answers_of_the_public_protocol_are_compared_by_their_numbers_and_weights() -> None:
    def told(weights: str, values: bytes, name: str = "values") -> bytes:
        return inference_pb2.ModelInferResponse(
            model_name="stock",
            model_version="1",
            id=weights,
            parameters={"weights_hash": inference_pb2.InferParameter(string_param=weights)},
            outputs=[inference_pb2.ModelInferResponse.InferOutputTensor(name=name)],
            raw_output_contents=[values],
        ).SerializeToString()

    speech = KServe()
    assert speech.values_of(told("a", b"1")) == speech.values_of(told("b", b"1")) != speech.values_of(told("a", b"2"))
    assert speech.values_of(told("a", b"1", "as_of")) == b""
    assert speech.facts_of(told("a", b"1")) != speech.facts_of(told("b", b"1"))


def test_the_emptiest_requests_of_the_public_protocol_are_what_they_are_called() -> None:
    made = {what: body for what, (_, body) in KServe().emptiest(9_000).items()}
    requests = {
        what: inference_pb2.ModelInferRequest.FromString(body) for what, body in made.items() if what != "groups alone"
    }
    assert len(requests["empty inputs"].inputs) == 4500
    assert len(requests["empty raw values"].raw_input_contents) > 2000
    assert len(requests["one input of empty texts"].inputs[0].contents.bytes_contents) > 4000
    assert len(requests["packed days of one byte"].inputs[0].contents.int64_contents) > 8000
    assert not requests["unknown fields"].ListFields()
    assert all(8_000 < len(body) <= 9_000 for body in made.values())


def test_callers_of_a_secured_server_show_their_token_over_tls(tmp_path: Path) -> None:
    secured = Secured(tmp_path / "secured")
    secured.write()
    issued = Issued(secured.folder)
    credentials = grpc.ssl_server_credentials([(issued.server_key.read_bytes(), issued.server.read_bytes())])
    guard = Guard(Tokens.parse((secured.folder / "tokens.txt").read_text(encoding="utf-8")))
    with serving(CannedService(forecast_of), guard=guard, credentials=credentials) as running:
        safe, bare = Target(port_of(running), secured), Target(port_of(running))
        assert asyncio.run(ask_once(safe, LIST, b"")).code is grpc.StatusCode.OK
        assert asyncio.run(ask_once(bare, LIST, b"", timeout_s=1.0)).code is not grpc.StatusCode.OK
        with safe.blocking_channel() as channel:
            assert channel.unary_unary(LIST)(b"")
        with safe.connection() as connection:
            stream = connection.call(LIST)
            connection.send(stream, http2.message(b""), last=True)
            assert connection.finish(stream).status == "0"


def test_the_first_faults_come_through_every_door_and_the_others_through_one() -> None:
    runs = runs_of(["burst", "orphans"], NAMES)
    assert runs == [("burst", "plain"), ("orphans", "plain"), ("burst", "tls"), ("burst", "kserve")]


def test_a_call_that_is_given_up_by_hand_is_cancelled(served: Served) -> None:
    with Target(port_of(served)).connection() as connection:
        stream, other = connection.call(STREAM), connection.call(LIST)
        connection.cancel(stream)
        connection.send(other, http2.message(b""), last=True)
        assert connection.finish(other).status == "0"


def test_the_last_bars_of_a_panel_are_those_of_its_last_session() -> None:
    last = talks.last_bars(panel(symbols=2, sessions=3))
    assert list(last.session_yyyymmdd) == [20240104]
    assert np.frombuffer(last.close).tolist() == [3.0, 6.0]
    assert not last.adj_close


# --- a load for long


def test_a_conversation_counts_errors_and_what_was_not_answered(served: Served) -> None:
    async def end_of(*requests: bytes) -> grpc.StatusCode | None:
        async with Target(port_of(served)).channel() as channel:
            return await Conversed("talk", 1, requests).once(channel)

    cancel = pb.PredictStreamRequest(request_id="a", cancel=pb.CancelRequest()).SerializeToString()
    assert asyncio.run(end_of(cancel)) is None
    assert asyncio.run(end_of(cancel, talks.asking_nobody("b"))) is grpc.StatusCode.INVALID_ARGUMENT
    assert asyncio.run(end_of(b"\xff")) is grpc.StatusCode.INVALID_ARGUMENT


def test_a_mixed_load_reconnects_and_keeps_what_ended_otherwise(served: Served) -> None:
    asked = Unary("asked", 3, LIST, b"")
    refused = Unary("refused", 1, "/quantra.v1.PredictionService/GetModel", b"\xff")
    given_up = Cancelled("given up", 1, LIST, b"", after_s=0.0)
    load = Load(Target(port_of(served)).channel, [asked, refused, given_up])
    asyncio.run(load.run(2, lambda: len(load.calls) >= 3 * RECONNECTED_AFTER))
    assert load.connections >= 4
    assert {one.part for one in load.calls} == {"asked", "refused", "given up"}
    assert {one.unexpected for one in load.calls if one.part == "refused"} == {grpc.StatusCode.INVALID_ARGUMENT}
    assert {one.unexpected for one in load.calls if one.part != "refused"} == {None}


def test_a_late_call_may_be_reset_at_the_end_of_its_time_but_not_before_and_not_with_a_reason() -> None:
    late, code = Late("late", 1, LIST, b"", timeout_s=0.01), grpc.StatusCode.CANCELLED
    assert late.is_reset(Ended(code, took_s=0.0099))
    assert not late.is_reset(Ended(code, took_s=0.004))
    assert not late.is_reset(Ended(code, has_details=True, took_s=0.0099))
    assert not late.is_reset(Ended(grpc.StatusCode.INTERNAL, took_s=0.0099))


def looks(*pairs: tuple[int, float]) -> list[Look]:
    return [Look(calls, Vitals(int(mib * (1 << 20)), 0, 1, 1, 0.0)) for calls, mib in pairs]


def test_memory_is_judged_by_the_second_half_of_the_calls() -> None:
    (grown,) = memory_rows(looks((0, 0.0), (4_000, 90.0), (5_000, 100.0), (7_500, 105.0), (10_000, 110.0)), judged=True)
    assert grown.value == pytest.approx(2.0)
    assert grown.ok is False
    (kept,) = memory_rows(looks((0, 0.0), (5_000, 100.0), (10_000, 100.0)), judged=True)
    assert (kept.value, kept.ok) == (0.0, True)


def test_drift_compares_the_last_third_with_the_first() -> None:
    calls = [Done("windows", at_s / 10, 0.010 if at_s < 600 else 0.013, None) for at_s in range(1000)]
    drift = time_rows(calls, 100.0, judged=True)[0]
    assert drift.value == pytest.approx(30.0)
    assert drift.ok is False


def test_what_is_done_beside_a_block_ends_with_it_and_its_errors_are_raised() -> None:
    done = threading.Event()
    with repeated(done.set, 0.0):
        assert done.wait(10)

    def broken() -> None:
        done.set()
        raise ZeroDivisionError

    done.clear()
    with pytest.raises(ZeroDivisionError), repeated(broken, 0.0):
        assert done.wait(10)


# --- what a log tells


def test_lines_that_hold_a_mark_are_counted_by_what_it_is(tmp_path: Path) -> None:
    lines = [f"refused {TOKEN}", f"close is {VALUE}", f"{SYMBOL} at {tmp_path}/x", "not served: stock/2"]
    assert held(lines, marks(tmp_path)) == {"a token": 1, "a value": 1, "a symbol": 1, "a path": 1}


def test_marked_bars_are_one_good_instance_and_three_bad_ones() -> None:
    panel = pb.BarPanel(symbols=["A"], session_yyyymmdd=[20240102, 20240103])
    for prices in ("open", "high", "low", "close"):
        setattr(panel, prices, struct.pack("<2d", 1.0, 1.0))
    made = [one.bars for one in marked_bars(pb.Instance(bars=panel))]
    assert {bars.symbols[0] for bars in made} == {SYMBOL}
    assert struct.unpack("<2d", made[0].close) == (1.0, VALUE)
    assert np.isnan(struct.unpack("<2d", made[1].open)[0])
    assert struct.unpack("<2d", made[2].close) == (-VALUE, VALUE)
    assert struct.unpack("<2d", made[3].low) == (1.0, 2 * VALUE)
