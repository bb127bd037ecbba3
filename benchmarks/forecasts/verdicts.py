"""The judged rows: our TFT against every other system and the baselines."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from benchmarks.forecasts.resampling import Interval
from benchmarks.forecasts.results import Entry, Results
from benchmarks.forecasts.systems import OUR_TFT
from benchmarks.report import Row, at_least, at_most, shown, unmeasured

MAX_ERRORS: Final = 2.0
"""Allowed deviation of a coverage from the nominal one, in bootstrap errors."""
EVEN: Final = 0.002
"""Our loss counts as even if it exceeds the best baseline's by at most this share and the interval holds 0."""
WIDEST: Final = 40
"""Width of a name in the table."""


def rows(results: Results, *, judged: bool) -> list[Row]:
    """Accuracy, coverage and width of one task."""
    name = results.task.name
    against = _against_peers(results, judged=judged and name != "ret")
    failed = [unmeasured(f"{name}: {system.name}", why) for system, why in results.failed.items()]
    return [
        *against,
        *_best(results, judged=judged),
        *failed,
        *_against_baselines(results, judged=judged),
        *_calibration(results, judged=judged),
    ]


def _against_peers(results: Results, *, judged: bool) -> list[Row]:
    """Our TFT against every peer's TFT, at the same budget."""
    ours = results.trained[OUR_TFT]
    peers = [e for e in results.trained.values() if e.system is not None and e.system.is_peer]
    rivals = [entry for entry in peers if entry.system is not None and entry.system.model == "tft"]
    if not rivals:
        return [shown(f"{results.task.name}: our TFT, pinball", ours.mean, detail=_seeds(ours))]
    title, best = results.task.name, min(rivals, key=lambda entry: entry.mean)
    intervals = {rival.name: results.difference(ours, rival) for rival in rivals}
    beaten = sum(interval.high < 0 for interval in intervals.values())
    return [
        at_most(
            f"{title}: our TFT, pinball",
            ours.mean,
            best.mean,
            detail=f"{_seeds(ours)}; the best peer's mean is {best.name}'s, {_seeds(best)}",
            judged=judged,
        ),
        at_least(
            f"{title}: peers' TFTs that ours beats significantly",
            float(beaten),
            float(len(rivals) // 2 + 1),
            detail=f"of {len(rivals)}; 95 % intervals, {_resampled(results)}",
            judged=judged,
        ),
        *(shown(f"{title}: ours - {who}", i.mean, detail=_describe_interval(i)) for who, i in intervals.items()),
    ]


def _best(results: Results, *, judged: bool) -> list[Row]:
    """The ensemble of `--model best` against every peer at the first step, and against its best member in hindsight."""
    title, ours = f"{results.task.name}, step 1", results.best
    peers = [entry for entry in results.first_step if entry.system is not None and entry.system.is_peer]
    if ours is None or not peers:
        return []
    rival, worst = min(peers, key=lambda entry: entry.mean), min(ours.hindsight, key=lambda found: found[-1])
    intervals = {peer.name: results.difference(ours, peer) for peer in peers}
    detail = f"{_seeds(ours)}; the best peer's mean is {rival.name}'s, {_seeds(rival)}"
    return [
        at_most(f"{title}: our best, pinball", ours.mean, rival.mean, detail=detail, judged=judged),
        *(shown(f"{title}: our best - {who}", i.mean, detail=_describe_interval(i)) for who, i in intervals.items()),
        at_least(
            f"{results.task.name}: our best on its best member in hindsight, upper edge of the improvement, %",
            100 * worst[-1],
            0.0,
            detail=f"the worst of {len(ours.seeds)} seeds, all horizons; 90 % interval from {100 * worst[1]:+.1f}",
            judged=judged,
        ),
    ]


def _against_baselines(results: Results, *, judged: bool) -> list[Row]:
    """Our networks as shipped against the best baseline: even, or better."""
    return [_even(results, ours, judged=judged) for ours in results.shipped]


def _even(results: Results, ours: Entry, *, judged: bool) -> Row:
    best = results.best_baseline
    difference = results.difference(ours, best)
    ok = difference.mean <= EVEN * best.mean and difference.low <= 0
    return Row(
        name=f"{results.task.name}: {ours.name} - best of {len(results.baselines)} baselines",
        value=difference.mean,
        reach=f"<= {100 * EVEN:g} %, low <= 0",
        ok=ok if judged else None,
        detail=f"{_describe_interval(difference)}; {_seeds(ours)}; {best.name}, {best.mean:.4f}",
    )


def _no_worse(name: str, difference: Interval, *, judged: bool, detail: str = "") -> Row:
    """A row that fails if the interval of a difference lies above 0."""
    ok = difference.low <= 0 if judged else None
    return Row(
        name=name, value=difference.mean, reach="low <= 0", ok=ok, detail=_describe_interval(difference) + detail
    )


def _calibration(results: Results, *, judged: bool) -> list[Row]:
    """Coverage and Winkler score of our TFT: calibrated once, as artifacts are, and adapted to later outcomes."""
    return [
        *_calibrated(results, "calibrated", "calibrated", judged=judged),
        *_calibrated(results, "adaptive", "adaptive conformal", judged=False),
    ]


def _calibrated(results: Results, variant: str, words: str, *, judged: bool) -> list[Row]:
    title, ours = results.task.name, results.trained[OUR_TFT]
    errors = np.abs(results.coverage_errors(ours.variants[variant]))
    covered, plain = (float(np.mean([one.covered for one in s])) for s in (ours.variants[variant], ours.seeds))
    coverage = at_most(
        f"{title}: 80 % coverage, {words}, largest deviation in errors",
        float(errors.max()),
        MAX_ERRORS,
        detail=f"step {errors.argmax() + 1}; {covered:.3f} over all steps, {plain:.3f} uncalibrated; "
        f"{_resampled(results)}",
        judged=judged,
    )
    winkler = float(np.mean([one.winkler for one in ours.seeds]))
    change = _no_worse(
        f"{title}: Winkler score, {words} - uncalibrated",
        results.winkler_change(ours, variant),
        judged=judged,
        detail=f"; {winkler:.4f} uncalibrated",
    )
    return [coverage, change]


def _seeds(entry: Entry) -> str:
    count = len(entry.seeds)
    return f"{entry.mean:.4f} ± {entry.spread:.4f} over {count} seeds" if count > 1 else f"{entry.mean:.4f}, one seed"


def _describe_interval(interval: Interval) -> str:
    return f"95 % interval {interval.low:+.4f} to {interval.high:+.4f}"


def _resampled(results: Results) -> str:
    resampler = results.resampler
    return f"bootstrap of blocks of {resampler.block} steps, about {resampler.effective} independent"


def table(results: Results) -> Sequence[str]:
    """Lines of a table of all entries, best first."""
    ours = results.trained[OUR_TFT]
    columns = f"{'pinball':>8} {'± sd':>7} {'± err':>7} {'ours - it, 95 %':>20} {'MAE':>7} {'80 %':>6} {'Winkler':>8}"
    title = f"{results.task.name}: {len(ours.pinball[0])} test windows, standardised units"
    lines = ["", title, f"{'':<{WIDEST}} {columns}"]
    lines += [_line(results, entry, ours) for entry in results.entries]
    best = results.best
    if best is None:
        return lines
    first = sorted(results.first_step, key=lambda entry: entry.mean)
    return [*lines, "", f"{results.task.name}: step 1", *(_line(results, entry, best) for entry in first)]


def _line(results: Results, entry: Entry, ours: Entry) -> str:
    difference = results.difference(ours, entry)
    apart = "" if entry is ours else f"{difference.low:+.4f} to {difference.high:+.4f}"
    spread = f"{entry.spread:.4f}" if len(entry.seeds) > 1 else "-"
    mean = [
        float(np.mean([getattr(one, name) for one in entry.seeds])) for name in ("absolute_error", "covered", "winkler")
    ]
    error = results.resampler.mean(entry.pinball).error
    return (
        f"{entry.name:<{WIDEST}} {entry.mean:>8.4f} {spread:>7} {error:>7.4f} {apart:>20} "
        f"{mean[0]:>7.4f} {mean[1]:>6.3f} {mean[2]:>8.4f}"
    )
