"""Train, evaluate and save stock models from Python, as the command line does.

from trainers import StockTrainer

forecaster = StockTrainer(model="tft", horizons=[1, 5, 20]).fit(frame)
forecast = forecaster.predict(frame)
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, final

import torch

from predictor.card import Card
from predictor.cluster import choose_runner
from predictor.dates import DateLike
from predictor.errors import ConfigurationError
from predictor.forecaster import Forecaster
from predictor.jobs import JobRunner
from predictor.networks import TargetKind
from trainers.loop import LoopError, Report
from trainers.loop.device import HostGenerators, PrecisionName
from trainers.loop.run_parts import OomChoice
from trainers.loop.step.guards import Nonfinite
from trainers.options import RunOptions
from trainers.progress import ConsumerChain, ReportCallback
from trainers.stock import data_warnings
from trainers.stock.backtest import (
    Backtest,
    BacktestFolder,
    Strategy,
    StrategySettings,
    TradingTerms,
    WalkForwardPlan,
    backtest,
)
from trainers.stock.backtest.backtest import choose_terms, complete_plan
from trainers.stock.backtest.refits import MAX_ROWS
from trainers.stock.backtest.source import use_model
from trainers.stock.data import WINDOWS_PER_BATCH
from trainers.stock.data_warnings import discard
from trainers.stock.ensembles.member_training import BEST, BestPlan
from trainers.stock.evaluation.evaluation import EvaluationSettings, ModelEvaluation, evaluate
from trainers.stock.feature_cache import open_cache
from trainers.stock.fitted_artifact import FittedArtifact, fit_best, fit_one
from trainers.stock.past_forecasts import cross_validate, forecast_past
from trainers.stock.progress_output import ProgressOutput, open_progress
from trainers.stock.recipe import Optimisation, Scale, Schedule, StockRecipe
from trainers.stock.splits import DataSplits, RollingSplits
from trainers.stock.training_jobs import save_files
from trainers.stock.training_plan import (
    Bars,
    CovariateFiles,
    TrainingPlan,
    load_bars,
    parse_day,
    parse_settings,
    read_covariates,
    suggest_names,
)

if TYPE_CHECKING:
    import polars as pl


NOT_RECORDED: Final = ("quiet", "on_report")
"""Settings that do not affect the model."""


@final
@suggest_names
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StockTrainer:
    """Trains a stock model, evaluates it on days that it has not seen, and saves it.

    The settings have the names of the flags of `quantra train stock`; see `quantra train stock --help`. None takes the
    default of the network kind. The constructor checks all settings. The same settings give the same artifact as the
    command, to the byte, on the same machine and with the same library versions.

    Example:
        trainer = StockTrainer(model="lstm", horizons=[1, 5], calendar="XNYS")
        forecaster = trainer.fit("bars.csv")
        print(trainer.evaluate("bars.csv", seeds=1))
        trainer.save("models/mine/1")

    Attributes:
        model: Kind of model: lstm, gru, hybrid, tft, graph, trees, har, garch, or best, which trains several kinds and
            combines them into one ensemble; lstm if left out.
        target: Target of the forecast: log-return or log-volatility.
        horizons: Sessions ahead, rising, such as [1, 5, 20].
        lag: 0 counts returns from the last close, 1 from the next.
        quantiles: Levels between 0 and 1, rising.
        encoder_length: Sessions that the network reads.
        scale: Units of the targets in training: har, garch, mix or window.
        calendar: Exchange code, such as XNYS, 24/7 or weekdays; if left out, the one that fits the dates.
        splits: Training, selection, calibration and test split, or their text, such as `rolling`, which leaves no test;
            None splits the bars by shares.
        features: `default`, `prices`, `alpha158`, or a file of feature expressions.
        known: Comma-separated names of covariates whose future values are known.
        hidden: Width of the network; a kind without this size, or one of the next five, raises an error.
        layers: Recurrent layers.
        blocks: Transformer layers of the hybrid.
        heads: Attention heads.
        neighbours: Edges per stock of the graph.
        trees: Most trees of each forest.
        leaves: Most leaves of each tree.
        dropout: Share dropped in training.
        epochs: Most epochs.
        patience: Epochs without a better selection loss before training stops.
        batch_size: Windows per micro-batch.
        learning_rate: Learning rate of AdamW.
        weight_decay: Weight decay of AdamW.
        schedule: Learning rate over time: constant, or cosine to 0.
        ranking_weight: Weight of the ranking loss of a model that ranks stocks.
        accumulate: Batches per optimizer step.
        clip: Largest norm of the gradients.
        ema: Decay per step of the exponential moving average of the weights; None keeps the weights themselves.
        precision: Number format of the computation.
        device: auto, cpu, cuda, cuda:N, xpu, xpu:N or mps; with mps, forecasts are computed on the CPU.
        oom: What to do when memory runs out: split batches, or fail.
        nonfinite: What to do when a loss is not finite: skip the step, or raise.
        compile: Use torch.compile.
        deterministic: Make a repeated training give the same bits, with slower kernels if needed.
        seed: Random seed of the initial weights, dropout and order of samples.
        threads: CPU threads of training and evaluation, 1 by default; another count gives other bits.
        edges: CSV file of a graph's edges: symbol, neighbour, weight.
        from_artifact: Folder of an artifact whose weights the training starts from (`--from`).
        feature_cache: Folder for computed features, from which later trainings on the same bars and features read them;
            it can be removed at any time.
        budget: Time for all trainings of the model best, such as 90s, 10m or 2h; 10m if left out.
        workers: Processes that train the kinds of the model best at the same time. A script needs
            `if __name__ == "__main__":` then.
        cluster: Train these kinds on a Ray cluster instead: local, auto or ray://HOST:PORT.
        recipe: Settings to start with instead of the defaults of the kind, for those without a flag.
        quiet: Show neither progress nor warnings.
        on_report: Called with every report of `fit`, of each network that the model best trains; the training waits
            for it, and fails if it raises. Kinds that are fitted without epochs, such as har, have no reports.

    Raises:
        ConfigurationError: A value is invalid, or settings contradict each other.
        ArtifactError: The artifact to start from is damaged.
    """

    model: str | None = None
    target: TargetKind | str | None = None
    horizons: Sequence[int] | None = None
    lag: int | None = None
    quantiles: Sequence[float] | None = None
    encoder_length: int | None = None
    scale: Scale | None = None
    calendar: str | None = None
    splits: DataSplits | RollingSplits | str | None = None
    features: str | Path | None = None
    known: str | None = None
    hidden: int | None = None
    layers: int | None = None
    blocks: int | None = None
    heads: int | None = None
    neighbours: int | None = None
    trees: int | None = None
    leaves: int | None = None
    dropout: float | None = None
    epochs: int | None = None
    patience: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    schedule: Schedule | None = None
    ranking_weight: float | None = None
    accumulate: int | None = None
    clip: float | None = None
    ema: float | None = None
    precision: PrecisionName | None = None
    device: str | None = None
    oom: OomChoice | None = None
    nonfinite: Nonfinite | None = None
    compile: bool | None = None
    deterministic: bool | None = None
    seed: int | None = None
    threads: int | None = None
    edges: str | Path | None = None
    from_artifact: str | Path | None = None
    feature_cache: str | Path | None = None
    budget: str | None = None
    workers: int | None = None
    cluster: str | None = None
    recipe: StockRecipe | None = None
    quiet: bool = False
    on_report: Callable[[Report], object] | None = None
    _artifact: FittedArtifact | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        _ = self.plan if self._best is None else (self._best, self._jobs())  # checks all settings

    @cached_property
    def plan(self) -> TrainingPlan:
        """The checked settings of one kind, merged with the defaults."""
        return TrainingPlan.of(
            self._given(),
            recipe=self.recipe,
            start=None if self.from_artifact is None else Path(self.from_artifact),
            edges=None if self.edges is None else Path(self.edges),
        )

    @property
    def card(self) -> Card:
        """Training record of the fitted model, with its scores and those of the baselines on the test split.

        Raises:
            ConfigurationError: nothing was fitted yet.
        """
        return self._fitted("card").card

    def fit(self, bars: Bars, covariates: CovariateFiles = ()) -> Forecaster:
        """Train, calibrate and score a model, and keep it for `evaluate`, `backtest` and `save`.

        No file is written. After an exception or Ctrl+C, the trainer keeps the model of the fit before.

        Args:
            bars: Daily bars: a DataFrame, a panel or a file.
            covariates: Files of covariates, or loaded covariates.

        Returns:
            The model, ready for requests; the caller closes it.

        Raises:
            QuantraError: The bars or files are invalid, or the training failed.
        """
        with self._working(self._threads) as output:
            cache = open_cache(self.feature_cache, output.warn)
            panel, source, reporting = load_bars(bars, cache), read_covariates(covariates), output
            if self.on_report is not None:
                reporting = replace(output, consume=ConsumerChain([ReportCallback(self.on_report), output.consume]))
            if self._best is None:
                fitted = fit_one(self.plan.with_calendar_of(panel, output.tell), panel, source, cache, reporting)
            else:
                fitted = fit_best(self._best, panel, source, cache, reporting, self._jobs(output.tell))
            model = fitted.build_model(self._forecast_device, max_rows=MAX_ROWS)
            output.tell(fitted.sentence)
        object.__setattr__(self, "_artifact", fitted)  # the settings are frozen
        return Forecaster.of(model)

    def save(self, folder: str | Path) -> Path:
        """Write the fitted model as an artifact, as `quantra train stock --out` does.

        Args:
            folder: Such as models/mine/1; it must not exist.

        Returns:
            The folder.

        Raises:
            ConfigurationError: Nothing was fitted yet, or the folder exists or cannot be written.
        """
        path = Path(folder)
        save_files(self._fitted("save").files, path)
        return path

    def evaluate(
        self,
        bars: Bars,
        covariates: CovariateFiles = (),
        *,
        start: DateLike | None = None,
        end: DateLike | None = None,
        seeds: int | None = None,
        aci: bool | None = None,
    ) -> ModelEvaluation:
        """Compare the fitted model with the baselines on days that it has not seen, as `quantra evaluate` does.

        Args:
            bars: Bars that include the training split.
            covariates: As for `fit`.
            start: First decision day, by default the first that the model has not seen.
            end: Last decision day.
            seeds: Trainings from different seeds, the fitted one included, 5 by default; 1 trains no other.
            aci: Also score adaptive conformal offsets.

        Raises:
            InSampleError: The model has seen the days.
            QuantraError: Nothing was fitted yet, or the bars do not fit the model.
        """
        fitted = self._fitted("evaluate")
        days = {name: None if day is None else parse_day(name, day) for name, day in (("start", start), ("end", end))}
        settings = parse_settings(EvaluationSettings, {**days, "seeds": seeds, "aci": aci, "device": self.device})
        with self._working(self._threads) as output:
            cache = open_cache(self.feature_cache, output.warn)
            return evaluate(
                fitted.build_model(self._forecast_device, max_rows=WINDOWS_PER_BATCH),
                load_bars(bars, cache),
                settings.over(EvaluationSettings()),
                consume=output.consume,
                announce=output.announce,
                warn=output.warn,
                covariates=read_covariates(covariates),
                cache=cache,
            )

    def backtest(  # noqa: PLR0913 - the flags of a command
        self,
        bars: Bars,
        covariates: CovariateFiles = (),
        *,
        start: DateLike | None = None,
        end: DateLike | None = None,
        refit: int | None = None,
        window: int | str | None = None,
        embargo: int | None = None,
        horizon: int | None = None,
        rebalance: int | None = None,
        cost_bps: float | None = None,
        borrow_bps: float | None = None,
        delisting_return: float | None = None,
        strategy: Strategy | str | None = None,
        share: float | None = None,
        threshold_bps: float | None = None,
        volatility: float | None = None,
        workers: int = 1,
        cluster: str | None = None,
    ) -> Backtest:
        """Trade the forecasts of the fitted model or its refits at the next close, with costs, as `quantra backtest`.

        Forecasts are stored in a temporary folder. None takes the command's default.

        Args:
            bars: Bars that include the training split.
            covariates: As for `fit`.
            start: First decision day, by default the first that the model has not seen.
            end: Last session of the book, by default that of the last bar.
            refit: Sessions between refits; None never refits.
            window: Sessions of a refit's training data, or `rolling:N`; None takes all before.
            embargo: Sessions between a refit's training data and its first decision.
            horizon: Sessions that a position is held for.
            rebalance: Sessions between trades.
            cost_bps: Costs of trades, in basis points.
            borrow_bps: Yearly costs of short positions, in basis points.
            delisting_return: Simple return of a position without bars, -1 or more.
            strategy: rank, sign or vol-target; by default rank, or sign for a single stock.
            share: rank: share of the day's stocks on each side.
            threshold_bps: sign: medians closer to 0 than this, in basis points, are flat.
            volatility: vol-target: yearly volatility of each stock.
            workers: Processes that refit in parallel.
            cluster: Refit on a Ray cluster instead: local, auto or ray://HOST:PORT.

        Raises:
            InSampleError: The model has seen decision days.
            QuantraError: Nothing was fitted yet, or bars and settings do not match.
        """
        settings = {
            "start": None if start is None else parse_day("start", start),
            "end": None if end is None else parse_day("end", end),
            "refit": refit,
            "window": window,
            "embargo": embargo,
            "horizon": horizon,
            "rebalance": rebalance,
            "cost_bps": cost_bps,
            "borrow_bps": borrow_bps,
            "delisting_return": delisting_return,
            "strategy": strategy,
            "share": share,
            "threshold_bps": threshold_bps,
            "volatility": volatility,
        }
        fitted = self._fitted("backtest")
        days = parse_settings(WalkForwardPlan, settings)
        terms = parse_settings(TradingTerms, settings)
        strategy_settings = parse_settings(StrategySettings, settings)
        with self._working(1) as output, TemporaryDirectory() as folder:
            model = fitted.build_model(self._forecast_device, max_rows=MAX_ROWS)
            source = use_model(model, fitted.stored.manifest_hash, read_covariates(covariates))
            source = replace(source, cache=open_cache(self.feature_cache, output.warn))
            panel = load_bars(bars, source.cache)
            data_warnings.emit(source.find_warnings(panel), output.warn)
            return backtest(
                source,
                panel,
                complete_plan(source, panel, days, output.tell),
                terms=choose_terms(terms, source),
                strategy_settings=strategy_settings.over(StrategySettings.default(len(panel.symbols))),
                folder=BacktestFolder(path=Path(folder) / "backtest"),
                runner=choose_runner(workers, cluster, tell=output.tell),
                watch=output.watch,
            )

    def forecast_history(
        self, bars: Bars, covariates: CovariateFiles = (), *, start: DateLike | None = None, end: DateLike | None = None
    ) -> "pl.DataFrame":
        """Forecast after every session that the fitted model has not seen, each from the bars until then.

        Args:
            bars: Bars that include the training split.
            covariates: As for `fit`.
            start: First session to forecast from, by default the first that the model has not seen.
            end: Last session to forecast from, by default that of the last bar.

        Returns:
            A row per symbol, session and horizon, with the columns of neuralforecast: `unique_id`, `ds`, `cutoff`,
            `horizon`, the outcome `y` and one per quantile, such as `0.1`.

        Raises:
            InSampleError: The model has seen the days.
            QuantraError: Nothing was fitted yet, or the bars do not fit the model.
        """
        fitted = self._fitted("forecast_history")
        first, last = (None if day is None else parse_day(name, day) for name, day in (("start", start), ("end", end)))
        with self._working(1):
            model = fitted.build_model(self._forecast_device, max_rows=MAX_ROWS)
            source = use_model(model, fitted.stored.manifest_hash, read_covariates(covariates))
            return forecast_past(source, load_bars(bars), first, last)

    def cross_validation(
        self, bars: Bars, covariates: CovariateFiles = (), *, windows: int = 4, step: int = 63
    ) -> "pl.DataFrame":
        """Train before each of the last windows, and forecast after each of its sessions; the fitted model is kept.

        Args:
            bars: Daily bars, as for `fit`. A model learns only from bars before its window.
            covariates: As for `fit`.
            windows: Number of windows, and of trainings.
            step: Sessions of a window.

        Returns:
            As `forecast_history`.

        Raises:
            QuantraError: The bars are invalid or too few, a training run failed, or the settings are for several
            trainings.
        """
        if self._best is not None or self.from_artifact is not None:
            raise ConfigurationError(
                f"cross_validation trains one new model per window; leave out model={BEST!r} and from_artifact"
            )
        with self._working(self._threads) as output:
            cache = open_cache(self.feature_cache, output.warn)
            panel = load_bars(bars, cache)
            plan = self.plan.with_calendar_of(panel, output.tell)
            material = replace(plan.material(panel, covariates), cache=cache)
            return cross_validate(material, plan.recipe, windows=windows, step=step)

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002, FBT001, FBT002 - scikit-learn's signature
        """Return every setting by name, so that `sklearn.base.clone` copies a trainer without its model."""
        return {**self._given(), **{name: getattr(self, name) for name in NOT_RECORDED}}

    def __repr__(self) -> str:
        settings = [f"{name}={value!r}" for name, value in self._given().items() if value is not None]
        return f"StockTrainer({', '.join([*settings, 'not fitted' if self._artifact is None else 'fitted'])})"

    def _given(self) -> Mapping[str, Any]:
        """Every setting by name; None means not given."""
        return {
            setting.name: getattr(self, setting.name)
            for setting in fields(self)
            if setting.init and setting.name not in NOT_RECORDED
        }

    def _fitted(self, purpose: str) -> FittedArtifact:
        if self._artifact is None:
            raise ConfigurationError(f"nothing was fitted yet; call fit(bars) before {purpose}")
        return self._artifact

    @cached_property
    def _best(self) -> BestPlan | None:
        """The settings of several kinds; None for one kind."""
        if self.model != BEST:
            if self.budget is not None:
                raise ConfigurationError(f"budget is the time of model {BEST}; leave it out for one kind of model")
            if self.workers is not None or self.cluster is not None:
                raise ConfigurationError(f"workers and cluster are for model {BEST}; leave them out for one kind")
            return None
        for name in ("from_artifact", "edges", "recipe"):
            if getattr(self, name) is not None:
                raise ConfigurationError(f"{name} is for one model; leave it out of model {BEST}")
        return BestPlan.of(self._given(), self.budget)

    def _jobs(self, tell: Callable[[str], None] = discard) -> JobRunner:
        """Where the kinds of the model best are trained."""
        jobs = choose_runner(1 if self.workers is None else self.workers, self.cluster, tell=tell)
        if jobs.is_parallel and (self._threads > 1 or self.on_report is not None):
            raise ConfigurationError(
                "workers and cluster train in other processes, which have one thread and no reports; leave out "
                "threads and on_report"
            )
        return jobs

    @property
    def _threads(self) -> int:
        return parse_settings(RunOptions, self._given()).over(RunOptions()).threads

    @property
    def _forecast_device(self) -> str:
        """The device of forecasts: the CPU for mps, which has no float64."""
        best = self._best
        optimisation = self.plan.recipe.optimisation if best is None else best.changes.optimisation.over(Optimisation())
        device = optimisation.device
        return "cpu" if device == "mps" else device

    @contextmanager
    def _working(self, threads: int) -> Generator[ProgressOutput]:
        """Set torch's threads and random generators, and restore the program's afterwards."""
        before = torch.get_num_threads()
        with open_progress(quiet=self.quiet) as output, HostGenerators(0):
            torch.set_num_threads(threads)
            try:
                yield output
            except LoopError as error:
                raise ConfigurationError(str(error)) from error
            finally:
                torch.set_num_threads(before)
