"""The graph model on a panel of about 1,000 stocks, beside HAR, LightGBM, reversal and itself without edges.

Two tasks, both walked forward by year with everything fitted anew: the volatility of the next 1, 5, 10 and 20 days, and
the order of the stocks by their return from the next close on (lag 1). A difference is of the same days' scores, with a
95 % interval from Newey-West errors of twice the horizon, because outcomes overlap.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecasts.panel_ours import Answers, GraphRival, Schedule
from benchmarks.forecasts.panel_rivals import har, har_of_variance, return_trees, reversal, volatility_trees
from benchmarks.forecasts.panel_scores import Paired, qlikes, rank_correlations, squared_errors
from benchmarks.forecasts.panel_series import HORIZONS, FloatArray, PanelSeries
from benchmarks.forecasts.panel_tasks import Fold, PanelForecasting, return_task, volatility_task
from benchmarks.forecasts.panel_variance import variance_forecast
from benchmarks.report import Row, common_options, publish, shown, unmeasured
from predictor.networks.graph import GraphConfig

OURS, EDGELESS, OF_VARIANCE = "graph", "graph without edges", "HAR of the variance"
Rival = Callable[[PanelForecasting, Fold, int], FloatArray]

QUICK_STOCKS = 200
VOLATILITY_CONFIG = GraphConfig()
VOLATILITY_SCHEDULE = Schedule()
RETURN_CONFIG = GraphConfig(dropout=0.3)
RETURN_SCHEDULE = Schedule(encoder_length=20, ranking_weight=1.0, learning_rate=1e-3, epochs=3)


@final
class Contest:
    """All models' forecasts of all years of a task, by name; those of the networks are made once."""

    def __init__(
        self, task: PanelForecasting, rivals: Mapping[str, Rival], config: GraphConfig, schedule: Schedule
    ) -> None:
        self.task = task
        self._rivals = rivals
        self._folds = tuple(task.folds())
        networks = {
            name: GraphRival(task, config, schedule, edges=edges) for name, edges in ((OURS, True), (EDGELESS, False))
        }
        self._ours = {name: [network.forecasts(fold) for fold in self._folds] for name, network in networks.items()}

    def calm(self, horizon: int) -> NDArray[np.bool_]:
        """[days] whether the outcome leaves out the wildest judged session, by the mean variance of the stocks."""
        days = np.concatenate([self.task.judged(fold, horizon) for fold in self._folds])
        variance = np.nanmean(self.task.series.variance, axis=0)
        wildest = self._folds[0].first_test + int(variance[self._folds[0].first_test :].argmax())
        return (days >= wildest) | (days + horizon < wildest)

    def outcome(self, horizon: int) -> FloatArray:
        """[S, days] of all years."""
        k = self.task.target.horizons.index(horizon)
        return np.concatenate([self.task.labels[:, self.task.judged(fold, horizon), k] for fold in self._folds], 1)

    def rival(self, name: str, horizon: int) -> FloatArray:
        """[S, days] what another model forecasts."""
        return np.concatenate([self._rivals[name](self.task, fold, horizon) for fold in self._folds], 1)

    def variance(self, name: str, horizon: int) -> FloatArray:
        """[S, days] what a network forecasts for the mean variance."""
        pairs = zip(self._folds, self._ours[name], strict=True)
        return np.concatenate([variance_forecast(self.task, fold, found, horizon) for fold, found in pairs], 1)

    def ours(self, name: str, horizon: int, read: Callable[[Answers], FloatArray]) -> FloatArray:
        """[S, days] what a network answers."""
        k = self.task.target.horizons.index(horizon)
        days = [len(self.task.judged(fold, horizon)) for fold in self._folds]
        return np.concatenate(
            [read(found.asked)[:, :count, k] for found, count in zip(self._ours[name], days, strict=True)], 1
        )


def volatility_rows(contest: Contest, *, judged: bool) -> list[Row]:
    rows: list[Row] = []
    for horizon in HORIZONS:
        outcome = contest.outcome(horizon)
        mean = {name: contest.ours(name, horizon, lambda found: found.mean) for name in (OURS, EDGELESS)}
        mean |= {name: contest.rival(name, horizon) for name in ("HAR", "LightGBM")}
        errors = {name: squared_errors(forecast, outcome) for name, forecast in mean.items()}
        told = ", ".join(f"{name} {error.mean():.4f}" for name, error in errors.items())
        place = f"volatility, {horizon} d: squared error less"
        for name, certain in (("HAR", True), ("LightGBM", False), (EDGELESS, False)):
            difference = Paired.of(errors[OURS] - errors[name], horizon=horizon)
            rows.append(_below(f"{place} {name}'s", difference, certain=certain, judged=judged, detail=told))
        rows += _qlike_rows(contest, horizon, mean, outcome, judged=judged)
    return rows


def _qlike_rows(
    contest: Contest, horizon: int, mean: Mapping[str, FloatArray], outcome: FloatArray, *, judged: bool
) -> list[Row]:
    """QLIKE wants a forecast of the mean variance, so that is judged; beside it stand two more even comparisons."""
    losses = {name: qlikes(forecast, outcome) for name, forecast in mean.items()}
    ours, rival = contest.variance(OURS, horizon), contest.rival(OF_VARIANCE, horizon)
    losses |= {f"{OURS} of the variance": qlikes(ours, outcome), OF_VARIANCE: qlikes(rival, outcome)}
    told = ", ".join(f"{name} {loss.mean():.4f}" for name, loss in losses.items())

    def row(name: str, ours: str, rival: str) -> Row:
        daily = losses[ours] - losses[rival]
        difference = Paired.of(daily, horizon=horizon)
        text = f"{difference}, lower on {np.mean(daily < 0):.0%} of days; {told}"
        return shown(f"volatility, {horizon} d: QLIKE {name}", difference.mean, detail=text)

    promised = row("of the variance less HAR's", f"{OURS} of the variance", "HAR")
    calm = Paired.of((losses[f"{OURS} of the variance"] - losses[OF_VARIANCE])[contest.calm(horizon)], horizon=horizon)
    place = f"volatility, {horizon} d: QLIKE of both variances but for one day"
    return [
        shown(place, calm.mean, detail=f"{calm}; without outcomes that hold the wildest session of all"),
        replace(promised, reach="<= 0", ok=promised.value is not None and promised.value <= 0 if judged else None),
        row("less HAR's, both of the log", OURS, "HAR"),
        row("less HAR's, both of the variance", f"{OURS} of the variance", OF_VARIANCE),
    ]


def _below(name: str, difference: Paired, *, certain: bool, judged: bool, detail: str) -> Row:
    """A difference that must be below 0, with its whole interval if `certain`."""
    reach, value = ("interval < 0", difference.high) if certain else ("< 0", difference.mean)
    text = f"{difference}; {detail}"
    return Row(name=name, value=difference.mean, reach=reach, ok=value < 0 if judged else None, detail=text)


def return_rows(contest: Contest) -> list[Row]:
    rows: list[Row] = []
    for horizon in HORIZONS:
        outcome = contest.outcome(horizon)
        scores = {name: contest.ours(name, horizon, lambda found: found.scores) for name in (OURS, EDGELESS)}
        scores |= {name: contest.rival(name, horizon) for name in ("LightGBM", "reversal")}
        found = {name: rank_correlations(score, outcome) for name, score in scores.items()}
        alone = {name: Paired.of(daily, horizon=horizon) for name, daily in found.items()}
        rows += [
            shown(f"returns, {horizon} d, lag 1: RankIC, {name}", x.mean, detail=str(x)) for name, x in alone.items()
        ]
        for name in ("LightGBM", "reversal", EDGELESS):
            difference = Paired.of(found[OURS] - found[name], horizon=horizon)
            rows.append(
                shown(f"returns, {horizon} d, lag 1: RankIC over {name}", difference.mean, detail=str(difference))
            )
    return rows


def measured(path: Path, *, quick: bool) -> list[Row]:
    """Both tasks on the panel of a file."""
    whole = PanelSeries.read(path)
    series = whole.first(QUICK_STOCKS) if quick else whole
    short = {"seeds": (0,), "epochs": 1, "stride": 20} if quick else {}
    rivals = {"HAR": har, OF_VARIANCE: har_of_variance, "LightGBM": volatility_trees}
    volatility = Contest(volatility_task(series), rivals, VOLATILITY_CONFIG, replace(VOLATILITY_SCHEDULE, **short))
    rows = volatility_rows(volatility, judged=not quick)
    orders = {"LightGBM": return_trees, "reversal": reversal}
    return rows + return_rows(Contest(return_task(series), orders, RETURN_CONFIG, replace(RETURN_SCHEDULE, **short)))


def main() -> int:
    options = common_options(__doc__ or "")
    options.add_argument("--panel", type=Path, metavar="FILE.npz", help="daily bars: ohlcv [S, D, 5] and dates [D]")
    given = options.parse_args()
    names = ("squared error less HAR's", "squared error less LightGBM's", "squared error less graph without edges's")
    absent = [unmeasured(f"volatility: {name}", "give --panel", reach="< 0") for name in names]
    absent.append(unmeasured("returns: RankIC over LightGBM, reversal, without edges", "give --panel"))
    return publish(absent if given.panel is None else measured(given.panel, quick=given.quick), given.json)


if __name__ == "__main__":
    sys.exit(main())
