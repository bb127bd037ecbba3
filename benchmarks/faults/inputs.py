"""The faults of what cannot be right: numbers, shapes and dates, each alone and as one instance of a thousand."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

import grpc
import numpy as np

from benchmarks.faults import names, transport
from benchmarks.faults.calls import NO_ANSWER, OUR_FAULT, PREDICT, Ended, ask, predict_request
from benchmarks.faults.cases import COLUMNS, Case, bar, changed, dates, fault_of, features, is_finite, numbers, shapes
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.models import NAME, Material
from benchmarks.faults.served import Server, serving
from benchmarks.report import at_most, shown
from predictor._pb import prediction_pb2 as pb

MANY, QUICK_MANY = 1000, 20
"""Instances of one call, one of which is wrong."""
QUICK_EVERY: Final = 9
"""In a short run every so many-th kind is sent among others."""
PLACE: Final = 0.417
"""Where the wrong one stands among them, of their number."""
PATIENCE_S: Final = 60.0
TOLERANCE: Final = 1e-6
"""Of returns: how many rows share a forward moves the last bits."""
_EXAMPLES: Final = 3


@final
@dataclass(frozen=True, slots=True)
class Group:
    """Cases of one kind.

    Attributes:
        fault: What they are.
        cases: All of them.
        naive: What a plain server makes of them, as it was measured elsewhere.
    """

    fault: str
    cases: Sequence[Case]
    naive: str = ""


def run(place: Place) -> Iterator[Finding]:
    """All of one server, which also has an address for changes of its models."""
    options = ("--log-level", "error", "--admin-listen", "127.0.0.1:0")
    with serving(place.material.small, place.log, *options) as server:
        groups = groups_of(place.material, asyncio.run(_feature_names(server)))
        for group in groups:
            yield asyncio.run(_alone(server, group))
        yield asyncio.run(_in_panels(server, place.material))
        yield asyncio.run(_among_others(place, server, [case for group in groups for case in group.cases]))
        yield names.unknown(place, server)
        yield from transport.faults(place, server)


def groups_of(material: Material, known: Sequence[str]) -> tuple[Group, ...]:
    """The cases, where the model's features have these names."""
    return (
        Group(
            "numbers that are none",
            [*numbers(material)],
            "naive: a row with a NaN is answered with NaN, one with an Inf too, 1e38 with numbers that mean nothing",
        ),
        Group(
            "shapes and features of another model",
            [*shapes(material), *features(material, known)],
            "naive: numpy's ValueError, which ends the call as UNKNOWN",
        ),
        Group("days that no market had", [*dates(material)]),
    )


async def _feature_names(server: Server) -> list[str]:
    body = pb.GetModelRequest(model=NAME).SerializeToString()
    async with server.target.channel() as channel:
        answer = await ask(channel, "/quantra.v1.PredictionService/GetModel", body)
    return [feature.name for feature in pb.GetModelResponse.FromString(answer.body).model.observed_features]


async def _alone(server: Server, group: Group) -> Finding:
    """Each case in a call of its own."""
    async with server.target.channel() as channel:
        ends = [await ask(channel, PREDICT, predict_request(case.instance), PATIENCE_S) for case in group.cases]
    told = [fault for case, end in zip(group.cases, ends, strict=True) if (fault := _told(case, end))]
    return Finding(
        fault=group.fault,
        done=f"{len(group.cases)} kinds, each in a call of its own",
        calls=len(ends),
        wrong=len(told) + (not server.is_alive),
        lost=sum(end.code in NO_ANSWER for end in ends),
        detail="; ".join(told[:_EXAMPLES]),
        naive=group.naive,
    )


def _told(case: Case, end: Ended) -> str:
    """What is wrong with the answer to a call of one case; a call that got none is lost."""
    if end.code is grpc.StatusCode.OK:
        return fault_of(case, pb.PredictResponse.FromString(end.body).results[0])
    return "" if end.code in NO_ANSWER else f"{case.what}: the call ended as {end.code.name}"


async def _in_panels(server: Server, material: Material) -> Finding:
    """Two stocks, the first of which is wrong: by itself where its bars are missing, by name where they are false."""
    pair = material.bars()
    missing = changed(pair, bar(COLUMNS, np.nan, day=-1))
    wild = changed(pair, bar(("open", "high", "low", "close", "adj_close"), 1e38))
    false = [changed(pair, bar([name], np.nan)) for name in COLUMNS]
    bodies = [predict_request(one) for one in (pair, missing, wild, *false)]
    async with server.target.channel() as channel:
        ends = [await ask(channel, PREDICT, body, PATIENCE_S) for body in bodies]
    results = [pb.PredictResponse.FromString(end.body).results[0] for end in ends if end.code is grpc.StatusCode.OK]
    if len(results) < len(ends):
        return Finding(
            fault="one bad symbol of a panel", done="", calls=len(ends), wrong=0, lost=len(ends) - len(results)
        )
    good, *rest = results
    alone = [refused_alone(result.forecast, good.forecast, pair.bars.symbols[0]) for result in rest[:2]]
    named = [pair.bars.symbols[0] in result.error.message for result in rest[2:]]
    return Finding(
        fault="one bad symbol of a panel",
        done="a panel of two whose first stock lacks its last bar, has a day of 1e38, or has a bar that is half NaN",
        calls=len(ends),
        wrong=alone.count(False) + named.count(False),
        lost=0,
        rows=[
            at_most("not refused alone, the other answered", alone.count(False), 0, detail=f"of {len(alone)}"),
            shown(
                "refused with the whole panel, by name", named.count(True), detail="bars that no market can have made"
            ),
        ],
    )


def refused_alone(forecast: pb.Forecast, good: pb.Forecast, symbol: str) -> bool:
    """Whether a panel's first symbol alone was refused, with its reason, and the others were answered as ever."""
    if [one.symbol for one in forecast.refusals] != [symbol] or not forecast.refusals[0].error.reason:
        return False
    mine, other = (np.frombuffer(one.values, "<f8").reshape(len(one.symbols), -1) for one in (forecast, good))
    return bool(np.isnan(mine[0]).all() and np.allclose(mine[1:], other[1:], rtol=0, atol=TOLERANCE))


async def _among_others(place: Place, server: Server, cases: Sequence[Case]) -> Finding:
    """Each kind as one instance of many that are good."""
    many = place.count(MANY, QUICK_MANY)
    sent = cases[::QUICK_EVERY] if place.quick else cases
    bad, good = int(PLACE * many), place.material.one_stock()
    ended: list[tuple[Case, Ended]] = []
    async with server.target.channel() as channel:
        expected = await ask(channel, PREDICT, predict_request(*[good] * 2), PATIENCE_S)
        for case in sent:
            body = predict_request(*[good] * bad, case.instance, *[good] * (many - bad - 1))
            ended.append((case, await ask(channel, PREDICT, body, PATIENCE_S)))
    judged = [among(case, end, bad, many, expected) for case, end in ended]
    moved = sum(others for _, others in judged)
    told = [fault for fault, _ in judged if fault]
    return Finding(
        fault="one instance of many is wrong",
        done=f"{len(sent)} kinds, each as one of {many} instances of a call",
        calls=len(ended),
        wrong=len(told) + sum(others > 0 for _, others in judged) + (not server.is_alive),
        lost=sum(end.code in NO_ANSWER for _, end in ended),
        rows=[
            at_most(
                "wrong ones not told as such, or otherwise than alone", len(told), 0, detail="; ".join(told[:_EXAMPLES])
            ),
            at_most("good ones that were not answered as ever", moved, 0, detail=f"of {len(sent) * (many - 1)}"),
            at_most(
                "calls that ended as a whole", sum(end.code in OUR_FAULT for _, end in ended), 0, detail="INTERNAL"
            ),
        ],
    )


def among(case: Case, end: Ended, bad: int, many: int, expected: Ended) -> tuple[str, int]:
    """What is wrong with the instance in that place, and how many of the others were not answered as expected."""
    if end.code in NO_ANSWER:
        return "", 0
    if end.code is not grpc.StatusCode.OK:
        return f"{case.what}: the call ended as {end.code.name}", many - 1
    results = pb.PredictResponse.FromString(end.body).results
    right = np.frombuffer(pb.PredictResponse.FromString(expected.body).results[0].forecast.values, "<f8")
    others = [result for k, result in enumerate(results) if k != bad]
    answered = sum(_is_as(result, right) for result in others)
    return fault_of(case, results[bad]) if len(results) == many else f"{case.what}: {len(results)} results", (
        many - 1 - answered
    )


def _is_as(result: pb.Result, right: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> bool:
    if not is_finite(result.forecast):
        return False
    values = np.frombuffer(result.forecast.values, "<f8")
    return values.shape == right.shape and bool(np.allclose(values, right, rtol=0, atol=TOLERANCE))
