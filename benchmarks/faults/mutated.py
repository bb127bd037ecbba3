"""The fault of messages that nobody meant, sent to every method that the server tells of."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Any, Final, final

import grpc
import grpc.aio
from google.rpc.code_pb2 import Code
from grpc_reflection.v1alpha import reflection_pb2

from benchmarks.faults.calls import NO_ANSWER, OUR_FAULT, PREDICT, STREAM, Ended, ask, ask_once, ended, predict_request
from benchmarks.faults.door import Door
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.kserve import KServe
from benchmarks.faults.models import NAME, Material
from benchmarks.faults.mutants import mutants
from benchmarks.faults.reflected import Method, filled, methods
from benchmarks.faults.served import serving
from benchmarks.faults.target import Target
from benchmarks.report import at_most, shown
from predictor._pb import prediction_pb2 as pb

CALLS, QUICK_CALLS, ELSEWHERE = 100_000, 1_000, 20_000
CALLERS: Final = 8
"""As many explanations as may wait, so that few are refused unread."""
PATIENCE_S: Final = 60.0
SEED: Final = 20_260_101
PREDICT_SHARE: Final = 4
"""How often the method that forecasts is chosen for each time that another method is."""
MADE_UP: Final = 4
MOST_EXAMPLES, SHOWN_BYTES = 3, 40
_NOTED: Final = frozenset({"bare", *(code.name for code in OUR_FAULT)})
_OUR_FAULT_CODES: Final = frozenset({Code.Value("UNKNOWN"), Code.Value("INTERNAL")})


@final
@dataclass(frozen=True, slots=True)
class Sent:
    """What was sent, and how it ended."""

    ends: Counter[str] = field(default_factory=Counter)
    """How often each status came."""
    examples: list[str] = field(default_factory=list)
    """A few of those that were the server's fault."""

    def note(self, method: Method, bodies: Sequence[bytes], end: Ended) -> None:
        """Count one call."""
        name = name_of(end, method)
        self.ends[name] += 1
        if name in _NOTED and len(self.examples) < MOST_EXAMPLES:
            start = b"".join(bodies)[:SHOWN_BYTES].hex()
            self.examples.append(f"{name} {end.message[:120]!r} from {method.path}, {len(bodies[0])} bytes: {start}")


def run(place: Place) -> Iterator[Finding]:
    """Send messages, and then one that is meant."""
    speech = place.door.speech
    with serving(place.material.small, place.log, "--log-level", "error", secured=place.door.secured) as server:
        with server.target.blocking_channel() as channel:
            known = methods(channel)
        path, request, values_of = speech.predict, speech.request(place.material.bars()), speech.values_of
        before = asyncio.run(ask_once(server.target, path, request))
        calls = place.count(CALLS, QUICK_CALLS, ELSEWHERE)
        sent = asyncio.run(_send(server.target, place.door, known, valid_messages(place.material), calls))
        after = asyncio.run(ask_once(server.target, path, request))
        is_same = is_answered(before) and is_answered(after) and values_of(after.body) == values_of(before.body)
        died = not server.is_alive
    yield _finding(sent, known, is_same=is_same, died=died, traces=place.log.read_text().count("Traceback"))


def _finding(sent: Sent, known: Sequence[Method], *, is_same: bool, died: bool, traces: int) -> Finding:
    ends = sent.ends
    faults = sum(ends[code.name] for code in OUR_FAULT)
    lost = sum(ends[code.name] for code in NO_ANSWER)
    return Finding(
        fault="mutated and random messages",
        done=f"valid requests changed at random, and random bytes, to the {len(known)} methods that reflection lists",
        calls=ends.total(),
        wrong=faults + ends["bare"] + (not is_same) + died,
        lost=lost,
        rows=[
            at_most("UNKNOWN or INTERNAL, of calls or of instances", faults, 0, detail="; ".join(sent.examples)),
            at_most("server died", int(died), 0, detail=""),
            at_most("a valid call then differs in any bit", int(not is_same), 0, detail="values, returns and prices"),
            shown("stack traces in the server's log", traces, detail=""),
        ],
        detail=told(ends),
        naive="naive: a grpc.aio server with generated stubs ends each as UNKNOWN with the name of a Python class",
    )


def is_answered(end: Ended) -> bool:
    """Whether a call got what it asked for."""
    return end.code is grpc.StatusCode.OK


def told(ends: Counter[str]) -> str:
    """How often each end came."""
    return ", ".join(f"{count} {name}" for name, count in ends.most_common())


def valid_messages(material: Material) -> Mapping[str, Sequence[bytes]]:
    """Real requests, by the full name of what they are."""
    both, one, window, public = material.bars(), material.one_stock(), material.window(), KServe()
    targets = [pb.ExplainTarget(horizon=5, quantile=0.5)]
    health: Any = b"\x0a\x05" + NAME.encode()
    asked = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="quantra.v1.PredictionService"),
        reflection_pb2.ServerReflectionRequest(file_by_filename="quantra/v1/prediction.proto"),
    ]
    reflection = [question.SerializeToString() for question in asked]
    return {
        "quantra.v1.ListModelsRequest": [b""],
        "quantra.v1.GetModelRequest": [pb.GetModelRequest(model=name).SerializeToString() for name in ("", NAME)],
        "quantra.v1.PredictRequest": [predict_request(both, window), predict_request(window), predict_request(one)],
        "quantra.v1.ExplainRequest": [
            pb.ExplainRequest(model=NAME, instance=window, targets=targets).SerializeToString(),
            pb.ExplainRequest(instance=one, targets=targets).SerializeToString(),
        ],
        "quantra.v1.ExplainGlobalRequest": [pb.ExplainGlobalRequest(instances=[window, one]).SerializeToString()],
        "quantra.v1.PredictStreamRequest": [one.SerializeToString() for one in stream_requests(material)],
        "inference.ModelInferRequest": [public.request(both), public.request(window), public.request(one, one)],
        "grpc.health.v1.HealthCheckRequest": [b"", health],
        "grpc.reflection.v1alpha.ServerReflectionRequest": reflection,
        "grpc.reflection.v1.ServerReflectionRequest": reflection,
    }


def stream_requests(material: Material) -> Sequence[pb.PredictStreamRequest]:
    """One of each kind."""
    one, made = material.one_stock(), pb.PredictStreamRequest
    last = pb.BarPanel()
    last.CopyFrom(one.bars)
    del last.session_yyyymmdd[:-1]
    for name in ("open", "high", "low", "close", "volume"):
        setattr(last, name, getattr(last, name)[-8:])
    return [
        made(request_id="a", predict=pb.StreamPredict(instance=material.window())),
        made(request_id="b", open=pb.OpenSession(session_id="s", instance=one)),
        made(request_id="c", push=pb.PushBars(session_id="s", bars=last, flush=True)),
        made(request_id="d", close=pb.CloseSession(session_id="s")),
        made(request_id="e", cancel=pb.CancelRequest()),
    ]


def messages_for(method: Method, valid: Mapping[str, Sequence[bytes]], random: Random) -> Sequence[bytes]:
    """What it reads: real requests, ones made up from its descriptor, and both in one."""
    known = valid.get(method.reads.full_name, ())
    made = [filled(method.reads, random).SerializeToString() for _ in range(MADE_UP)]
    return [*known, *known, *made, *(one + other for one in known for other in made[:2])]


async def _send(
    target: Target, door: Door, known: Sequence[Method], valid: Mapping[str, Sequence[bytes]], calls: int
) -> Sent:
    random = Random(SEED)  # noqa: S311 - a run that can be repeated
    messages = {method.path: messages_for(method, valid, random) for method in known}
    others = [message for some in messages.values() for message in some]
    sources = {path: mutants(random, some, others) for path, some in messages.items()}
    weights = [PREDICT_SHARE if method.path == door.speech.predict else 1 for method in known]
    plan = iter(random.choices(known, weights, k=calls))
    sent = Sent()
    with target.blocking_channel() as plain:
        async with target.channel() as channel:

            async def caller() -> None:
                for method in plan:
                    count = random.randint(1, 3) if method.takes_many else 1
                    bodies = list(islice(sources[method.path], count))
                    sent.note(method, bodies, await ask_method(channel, plain, method, bodies))

            await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return sent


def name_of(end: Ended, method: Method) -> str:
    """The status of a call; UNKNOWN also if an instance within has one that is the server's fault."""
    if end.is_bare:
        return "bare"
    if method.path == PREDICT and end.code is grpc.StatusCode.OK:
        results = pb.PredictResponse.FromString(end.body).results
        if any(result.error.code in _OUR_FAULT_CODES for result in results):
            return "UNKNOWN"
    return end.code.name


async def ask_method(channel: grpc.aio.Channel, plain: grpc.Channel, method: Method, bodies: Sequence[bytes]) -> Ended:
    """One call of any kind; a stream that answers and goes on is left after its first answer.

    Streams of requests go over the synchronous channel: the other one ends a call as INTERNAL by itself if the server
    has ended it while a message is being sent.
    """
    if not method.takes_many and not method.gives_many:
        return await ask(channel, method.path, bodies[0], PATIENCE_S)
    return await asyncio.to_thread(ask_stream, plain, method, bodies)


def ask_stream(channel: grpc.Channel, method: Method, bodies: Sequence[bytes]) -> Ended:
    """One call that sends or gets a stream."""
    call: Any
    try:
        if not method.gives_many:
            return Ended(grpc.StatusCode.OK, channel.stream_unary(method.path)(iter(bodies), timeout=PATIENCE_S))
        if method.takes_many:
            call = channel.stream_stream(method.path)(iter(bodies), timeout=PATIENCE_S)
        else:
            call = channel.unary_stream(method.path)(bodies[0], timeout=PATIENCE_S)
        for answer in call:
            if method.path == STREAM and pb.PredictStreamResponse.FromString(answer).error.code in _OUR_FAULT_CODES:
                return Ended(grpc.StatusCode.INTERNAL, answer)
            if not method.takes_many:
                call.cancel()
                break
    except grpc.RpcError as refused:
        return ended(refused, 0.0)
    return Ended(grpc.StatusCode.OK)
