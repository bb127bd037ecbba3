"""The fault of a log that tells too much: what callers send, who they are, and where things lie on the machine."""

import asyncio
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from benchmarks.faults.calls import EXPLAIN, PREDICT, Ended, codes, ended
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.models import NAME, WEIGHTS
from benchmarks.faults.served import Server, serving, wait_for
from benchmarks.report import at_least, at_most
from predictor._pb import prediction_pb2 as pb

TOKEN: Final = "SECRET-TOKEN-of-a-caller-0123456789"  # noqa: S105 - one that opens nothing
SYMBOL: Final = "MARKED.SYMBOL"
VALUE: Final = 1234.5678901234
"""A close, and the beginning of it that no other number has."""
SHOWN: Final = "1234.567"
EACH, QUICK_EACH = 20, 2
"""Times that each request is sent."""
PATIENCE_S: Final = 30.0


def run(place: Place) -> Iterator[Finding]:
    """A server that logs all it can, while all that may go wrong does."""
    models = place.work / "models"
    shutil.copytree(place.material.small, models)
    damaged = Path(shutil.copytree(models / NAME / "1", models / NAME / "2")) / WEIGHTS
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with serving(models, place.log, "--log-level", "debug", "--watch") as server:
        ends = asyncio.run(_calls(server, place, place.count(EACH, QUICK_EACH)))
        _trouble(server, models)
    log = place.log.read_text(encoding="utf-8")
    found = held(log.splitlines(), marks(models))
    yield Finding(
        fault="what a server's log tells",
        done=f"{len(ends)} calls with a token, good ones and such with a marked symbol and value, at log level "
        "debug; a damaged version, and a folder of models that goes away and comes back",
        calls=len(ends),
        wrong=sum(found.values()),
        lost=0,
        rows=[
            *(at_most(f"lines with {what}", count, 0, detail="of the whole log") for what, count in found.items()),
            at_least("lines", len(log.splitlines()), 2, detail="there is a log"),
            at_least(
                "lines about what is not served", log.count("not served: "), 2, detail="a version, and the folder"
            ),
        ],
        detail=codes(ends),
    )


def marks(models: Path) -> Mapping[str, Sequence[str]]:
    """What none of its lines may hold, by what it is."""
    return {
        "a token": [TOKEN, "Bearer"],
        "a value": [SHOWN],
        "a symbol": [SYMBOL],
        "a path": [str(models), str(models.parent), str(Path(__file__).parents[2])],
    }


def held(lines: Sequence[str], marked: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """How many lines hold one of the texts, by what they are."""
    return {what: sum(any(text in line for text in texts) for line in lines) for what, texts in marked.items()}


def marked_bars(instance: pb.Instance) -> Sequence[pb.Instance]:
    """The same bars with the marked symbol and value: good ones, and some with faults that messages tell."""
    made: list[pb.Instance] = []
    for change in (_kept, _not_a_number, _negative, _high_below_low):
        other = pb.Instance()
        other.CopyFrom(instance)
        other.bars.symbols[0] = SYMBOL
        closes = bytearray(other.bars.close)
        struct.pack_into("<d", closes, len(closes) - 8, VALUE)
        other.bars.close = bytes(closes)
        change(other.bars)
        made.append(other)
    return made


def _kept(_: pb.BarPanel) -> None:
    pass


def _not_a_number(bars: pb.BarPanel) -> None:
    bars.open = struct.pack("<d", float("nan")) + bars.open[8:]


def _negative(bars: pb.BarPanel) -> None:
    bars.close = struct.pack("<d", -VALUE) + bars.close[8:]


def _high_below_low(bars: pb.BarPanel) -> None:
    bars.low = bars.low[:-8] + struct.pack("<d", 2 * VALUE)


async def _calls(server: Server, place: Place, each: int) -> list[Ended]:
    bars = marked_bars(place.material.one_stock())
    requests = [
        *((PREDICT, pb.PredictRequest(model=NAME, instances=[one]).SerializeToString()) for one in bars),
        *((EXPLAIN, pb.ExplainRequest(model=NAME, instance=one, tolerance=0.05).SerializeToString()) for one in bars),
        (PREDICT, pb.PredictRequest(model=f"../{TOKEN}", instances=[bars[0]]).SerializeToString()),
        (PREDICT, bars[0].SerializeToString()[:-3]),
        (f"/quantra.v1.PredictionService/{TOKEN}", b""),
    ]
    ends: list[Ended] = []
    async with server.target.channel() as channel:
        for path, body in requests * each:
            call = channel.unary_unary(path)(
                body, timeout=PATIENCE_S, metadata=(("authorization", f"Bearer {TOKEN}"), ("x-token", TOKEN))
            )
            try:
                await call
            except grpc.aio.AioRpcError as refused:
                ends.append(ended(refused, 0.0))
            else:
                ends.append(Ended(grpc.StatusCode.OK))
    return ends


def _trouble(server: Server, models: Path) -> None:
    """Let the folder of models go away and come back, and wait until that is told."""
    models.rename(models.with_name("away"))
    wait_for(lambda: "cannot be read" in server.log.read_text(encoding="utf-8"), PATIENCE_S)
    models.with_name("away").rename(models)
