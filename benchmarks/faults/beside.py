"""The fault of explanations that run beside predictions: any bit that differs is a wrong forecast."""

import asyncio
import contextlib
import select
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from typing import Final

import grpc

from benchmarks.faults.calls import EXPLAIN, NO_ANSWER, Ended, ask
from benchmarks.faults.door import Door
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.models import Material
from benchmarks.faults.served import serving
from benchmarks.faults.target import Target
from benchmarks.report import at_least, at_most
from predictor._pb import prediction_pb2 as pb

CALLS, QUICK_CALLS, ELSEWHERE = 10_000, 200, 5_000
CALLERS: Final = 4
PATIENCE_S: Final = 30.0


def run(place: Place) -> Iterator[Finding]:
    """One row a forward, so that what a call is answered with depends on no other call."""
    speech, secured = place.door.speech, place.door.secured
    request = speech.request(place.material.one_stock())
    options = ("--log-level", "error", "--max-batch-rows", "1")
    with serving(place.material.small, place.log, *options, secured=secured) as server:
        (before,) = asyncio.run(_predict(server.target, speech.predict, request, 1))
        with _explaining(server.target, place) as explained:
            ends = asyncio.run(
                _predict(server.target, speech.predict, request, place.count(CALLS, QUICK_CALLS, ELSEWHERE))
            )
        (after,) = asyncio.run(_predict(server.target, speech.predict, request, 1))
    told = explained[0] if explained else "0 0"
    count, different = map(int, told.split())
    yield _finding(place, before, ends, after, (count, different))


def _finding(place: Place, before: Ended, ends: Sequence[Ended], after: Ended, explained: tuple[int, int]) -> Finding:
    values_of = place.door.speech.values_of
    expected = values_of(before.body)
    answered = [end for end in ends if end.code is grpc.StatusCode.OK]
    differing = sum(values_of(end.body) != expected for end in answered)
    moved = int(values_of(after.body) != expected)
    count, repeated_otherwise = explained
    return Finding(
        fault="predictions beside explanations",
        done=f"{len(ends)} predictions of {CALLERS} callers while {count} explanations run one after the other",
        calls=len(ends) + count,
        wrong=differing + moved + repeated_otherwise,
        lost=sum(end.code in NO_ANSWER for end in ends) + (len(ends) - len(answered)),
        rows=[
            at_most("predictions that differ in any bit", differing, 0, detail="from the one before all explanations"),
            at_most("a prediction afterwards differs", moved, 0, detail="when the last explanation has ended"),
            at_most("explanations that differ from the first", repeated_otherwise, 0, detail=f"of {count}"),
            at_least("explanations meanwhile", count, 1, detail="they pause while predictions come"),
        ],
        detail=place.material.networks(),
        naive="naive: training mode switched on for the explanation: 750 of 750 predictions beside it differed, and "
        "the model predicted otherwise for ever after",
    )


async def _predict(target: Target, path: str, request: bytes, calls: int) -> list[Ended]:
    plan, ends = iter(range(calls)), list[Ended]()

    async def caller() -> None:
        async with target.channel() as channel:
            for _ in plan:
                ends.append(await ask(channel, path, request, PATIENCE_S))

    await asyncio.gather(*(caller() for _ in range(min(CALLERS, calls))))
    return ends


@contextmanager
def _explaining(target: Target, place: Place) -> Generator[list[str]]:
    """A process that explains; the list has what it says, after the block: how many, and how many others differed."""
    command = [sys.executable, "-m", "benchmarks.faults.beside"]
    command += [str(target.port), place.door.name, str(place.material.folder)]
    said: list[str] = []
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as popen:
        try:
            assert popen.stdout is not None
            popen.stdout.readline()
            yield said
            with contextlib.suppress(TimeoutExpired):
                said.append(popen.communicate("", timeout=2 * PATIENCE_S)[0])
        finally:
            popen.kill()


def explain_until_told(target: Target, material: Material) -> None:
    """Explain one forecast over and over until the input ends; prints a line first, and the two numbers at the end."""
    question = pb.ExplainRequest(instance=material.one_stock()).SerializeToString()
    count = different = 0
    with target.blocking_channel() as channel:
        explain = channel.unary_unary(EXPLAIN)
        first = reasons_of(explain(question, timeout=PATIENCE_S))
        print("begun", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            different += reasons_of(explain(question, timeout=PATIENCE_S)) != first
            count += 1
    print(count, different)


def reasons_of(answer: bytes) -> bytes:
    """The numbers of an explanation."""
    attributions = pb.ExplainResponse.FromString(answer).attributions
    return b"|".join(one.per_row + one.prediction + one.baseline_prediction for one in attributions)


if __name__ == "__main__":
    made = Material(Path(sys.argv[3]))
    explain_until_told(Target(int(sys.argv[1]), Door.of(sys.argv[2], made).secured), made)
