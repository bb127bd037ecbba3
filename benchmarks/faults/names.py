"""The fault of models that are not there, asked for by names that would be paths, at every method that takes one."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import grpc

from benchmarks.faults.calls import (
    NO_ANSWER,
    OUR_FAULT,
    PREDICT,
    Ended,
    ask_once,
    codes,
    ended,
    predict_request,
    values_of,
)
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.models import NAME
from benchmarks.faults.served import Server
from benchmarks.faults.target import Target
from benchmarks.report import at_most
from predictor._pb import prediction_pb2 as pb

NAMES: Final = (
    "nobody",
    "../../x",
    "../versions",
    "../versions@1",
    f"../small/{NAME}",
    f"{NAME}@../1",
    f"{NAME}@1/../../../versions/1",
    f"./{NAME}",
    f"{NAME}/1",
    "..",
    "/etc/passwd",
    "file:///etc/passwd",
    "C:\\Windows\\win.ini",
    "\0",
    f"{NAME}\0",
    f"{NAME}@1\0.txt",
    f"{NAME}@99",
    f"{NAME}@-1",
    f"{NAME}@99999999999999999999999",
    f"{NAME}@1.0",
    f"{NAME}@nobody",
    f"{NAME}@1@1",
    f"{NAME}@",
    f" {NAME}",
    NAME.upper(),
    "%2e%2e%2f",
    "$(touch x)",
    "\u202e\U0001f4c8",
    "x" * 1_000_000,
    "\0" * 1_000_000,
)
"""None means the model that is served. `../versions/1` is an artifact that could be served, beside the folder."""
QUICK_EVERY: Final = 5
PATIENCE_S: Final = 20.0
SERVICE, ADMIN = "/quantra.v1.PredictionService/", "/quantra.v1.ModelAdminService/"
_RIGHT: Final = frozenset(
    {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED}
)

Builders = Mapping[str, Callable[[str], Any]]


def builders(instance: pb.Instance) -> Builders:
    """What each method that takes the name of a model is sent, by path."""
    return {
        f"{SERVICE}GetModel": lambda name: pb.GetModelRequest(model=name),
        f"{SERVICE}Predict": lambda name: pb.PredictRequest(model=name, instances=[instance]),
        f"{SERVICE}Explain": lambda name: pb.ExplainRequest(model=name, instance=instance),
        f"{SERVICE}ExplainGlobal": lambda name: pb.ExplainGlobalRequest(model=name, instances=[instance]),
        f"{SERVICE}PredictStream": lambda name: pb.PredictStreamRequest(
            request_id="1", predict=pb.StreamPredict(model=name, instance=instance)
        ),
        f"{ADMIN}LoadModel": lambda name: pb.LoadModelRequest(model=name),
        f"{ADMIN}UnloadModel": lambda name: pb.UnloadModelRequest(model=name),
        f"{ADMIN}ReloadModel": lambda name: pb.ReloadModelRequest(model=name),
    }


def unknown(place: Place, server: Server) -> Finding:
    """Every name at every method; then the model that is served is what it was, and so are the files."""
    request = predict_request(place.material.one_stock(), model=NAME)
    before, files = asyncio.run(ask_once(server.target, PREDICT, request)), stamps(place.material.folder)
    sent = NAMES[::QUICK_EVERY] if place.quick else NAMES
    asked = builders(place.material.one_stock())
    ends: dict[tuple[str, str], Ended] = {}
    with (
        server.target.blocking_channel() as calls,
        Target(int(str(server.ready["admin_port"]))).blocking_channel() as admin,
    ):
        for path, build in asked.items():
            channel = admin if path.startswith(ADMIN) else calls
            for name in sent:
                ends[path, name] = call(channel, path, build(name).SerializeToString())
    after = asyncio.run(ask_once(server.target, PREDICT, request))
    is_same = bool(before.body) and values_of(after.body) == values_of(before.body)
    touched = int(stamps(place.material.folder) != files)
    strange = [(key, end) for key, end in ends.items() if end.code not in _RIGHT | NO_ANSWER]
    shown_ones = "; ".join(f"{path.rpartition('/')[2]} {name[:20]!r}: {end.code.name}" for (path, name), end in strange)
    return Finding(
        fault="models that are not there",
        done=f"{len(sent)} names, with ../, NUL and up to 1 MB, at each of {len(asked)} methods",
        calls=len(ends) + 2,
        wrong=len(strange) + touched + (not is_same) + (not server.is_alive),
        lost=sum(end.code in NO_ANSWER for end in ends.values()),
        rows=[
            at_most("calls that got what they asked for", sum(_is_ok(end) for end in ends.values()), 0, detail=""),
            at_most(
                "UNKNOWN or INTERNAL", sum(end.code in OUR_FAULT for end in ends.values()), 0, detail=shown_ones[:300]
            ),
            at_most("files that were touched", touched, 0, detail="in the folder of models and around it"),
            at_most("a valid call then differs in any bit", int(not is_same), 0, detail=""),
        ],
        detail=codes(ends.values()),
    )


def call(channel: grpc.Channel, path: str, body: bytes) -> Ended:
    """One call of one message, whatever its kind; of a stream the first answer, or the error in it."""
    multi: Any = channel.stream_stream(path)
    try:
        answers = list(multi(iter([body]), timeout=PATIENCE_S))
    except grpc.RpcError as refused:
        return ended(refused, 0.0)
    if path.endswith("/PredictStream"):
        told = [pb.PredictStreamResponse.FromString(answer).error.code for answer in answers]
        return Ended(_status(told[0] if told else 0))
    return Ended(grpc.StatusCode.OK)


def _status(number: int) -> grpc.StatusCode:
    return next(code for code in grpc.StatusCode if code.value[0] == number)


def _is_ok(end: Ended) -> bool:
    return end.code is grpc.StatusCode.OK


def stamps(folder: Path) -> dict[Path, int]:
    """When each file and folder there was last changed."""
    return {path: path.lstat().st_mtime_ns for path in sorted(folder.rglob("*"))}
