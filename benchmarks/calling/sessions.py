"""Time from a day's bar to its forecast: the bar pushed to a session, or the whole history sent again."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from benchmarks.calling.subject import panel_of
from benchmarks.report import Row, at_most, shown
from predictor.bars import BarPanel
from predictor.client import QuantraClient
from trainers.demo.market import real_bars

SYMBOLS: Final = 8
"""Size of the panel whose row is judged."""
DAYS: Final = 20
"""Days per round, each forecast both ways."""
REACH: Final = 0.5

Round = tuple[float, float]
"""Medians of one round, in ms: a push, and a request with the whole history."""


def session_rows(client: QuantraClient, rounds: int, *, judged: bool) -> Iterator[Row]:
    """A session against `Predict`, for a panel and for one symbol, where the forecast itself dominates both."""
    bars = real_bars(["AAPL"])
    for panel in (panel_of(bars, SYMBOLS), bars):
        found = [one_round(client, panel) for _ in range(rounds)]
        symbols, sessions = panel.close.shape
        name = "forecast from a pushed bar / from the whole history"
        detail = (
            f"{symbols} symbols x {sessions} sessions; {describe_medians(found)}; medians of {rounds} rounds of {DAYS} "
            "days"
        )
        ratio = statistics.median(pushed / asked for pushed, asked in found)
        if symbols == SYMBOLS:
            yield at_most(f"{name}, {symbols} symbols", ratio, REACH, detail=detail, judged=judged)
        else:
            yield shown(f"{name}, {symbols} symbol", ratio, detail=detail)


def one_round(client: QuantraClient, bars: BarPanel) -> Round:
    """Push each of the last days to a session that starts before them, then send the whole history."""
    days = [int(day) for day in bars.sessions[-DAYS:]]
    pushed_ms, asked_ms = list[float](), list[float]()
    with client.open_session(bars.until(int(bars.sessions[-DAYS - 1]))) as session:
        for day in days:
            alone, whole = bars.between(day, day), bars.until(day)
            pushed_ms.append(time_ms(lambda alone=alone: session.push(alone)))
            asked_ms.append(time_ms(lambda whole=whole: client.predict(whole)))
    return statistics.median(pushed_ms), statistics.median(asked_ms)


def time_ms(work: Callable[[], object]) -> float:
    """Time a call."""
    begun_s = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - begun_s)


def describe_medians(found: Sequence[Round]) -> str:
    """Describe both medians."""
    pushed, asked = (statistics.median(column) for column in zip(*found, strict=True))
    return f"{pushed:.3g} ms against {asked:.3g} ms"
