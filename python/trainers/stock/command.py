"""`quantra train stock …` and `python -m trainers.stock …`: a thin map from flags to a recipe."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from predictor.bars import BarPanel
from predictor.cli.scores import judgement
from predictor.errors import ConfigurationError
from predictor.features import FeatureSet, default_features
from predictor.networks import LSTMConfig, Target, TargetKind
from trainers.loop import LoopError, Report
from trainers.progress import Consumer, JsonLines, JsonlLog, progress_for
from trainers.stock.recipe import Optimisation, Recipe
from trainers.stock.splits import Splits
from trainers.stock.training import train

DEFAULTS = Recipe()
LSTM = LSTMConfig()
EXAMPLE = "Example: quantra train stock --bars bars.csv --model lstm --calendar XNYS --out models/demo/1"


def _listed(values: Iterable[float]) -> str:
    """Numbers as a flag writes them, such as 1,5,20."""
    return ",".join(f"{value:g}" for value in values)


def stock(  # noqa: PLR0913 - one argument a flag
    *,
    bars: Annotated[Path, typer.Option(help="CSV or Parquet file of daily bars.")],
    out: Annotated[Path, typer.Option(help="Folder of the artifact, such as models/NAME/1; it must not exist.")],
    model: Annotated[str, typer.Option(help="Network kind: lstm.")] = DEFAULTS.kind,
    features: Annotated[str, typer.Option(help="A file of feature expressions, or `default`.")] = "default",
    calendar: Annotated[
        str, typer.Option(help="Exchange code, such as XNYS; empty: Monday to Friday.")
    ] = DEFAULTS.calendar,
    target: Annotated[str, typer.Option(help="log-return or log-volatility.")] = DEFAULTS.target.kind.value,
    horizons: Annotated[str, typer.Option(help="Trading days.")] = _listed(DEFAULTS.target.horizons),
    quantiles: Annotated[str, typer.Option(help="Levels between 0 and 1.")] = _listed(DEFAULTS.quantiles),
    lag: Annotated[int, typer.Option(help="0: returns from the last close; 1: from the next.")] = DEFAULTS.target.lag,
    splits: Annotated[
        str,
        typer.Option(
            metavar="FIRST/LAST,…",
            help="Sessions of train, selection, calibration and test: 2000-01-03/2007-12-31,…; empty: by shares.",
        ),
    ] = "",
    encoder_length: Annotated[int, typer.Option(help="Sessions that the network reads.")] = DEFAULTS.encoder_length,
    hidden: Annotated[int, typer.Option(help="Width of the network.")] = LSTM.hidden,
    layers: Annotated[int, typer.Option(help="LSTM layers.")] = LSTM.layers,
    dropout: Annotated[float, typer.Option(help="Share of values dropped in training.")] = LSTM.dropout,
    epochs: Annotated[int, typer.Option(help="Epochs at most.")] = DEFAULTS.optimisation.max_epochs,
    patience: Annotated[
        int, typer.Option(help="Epochs without improvement before it ends.")
    ] = DEFAULTS.optimisation.patience,
    batch_size: Annotated[int, typer.Option(help="Windows a micro-batch.")] = DEFAULTS.optimisation.batch_size,
    accumulate: Annotated[
        int, typer.Option(help="Micro-batches an optimizer step.")
    ] = DEFAULTS.optimisation.accumulate,
    learning_rate: Annotated[float, typer.Option(help="Of AdamW.")] = DEFAULTS.optimisation.learning_rate,
    weight_decay: Annotated[float, typer.Option(help="Of AdamW.")] = DEFAULTS.optimisation.weight_decay,
    clip: Annotated[float, typer.Option(help="Largest gradient norm.")] = DEFAULTS.optimisation.clip,
    precision: Annotated[str, typer.Option(help="auto, fp32, bf16 or fp16.")] = DEFAULTS.optimisation.precision,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda[:N], xpu or mps.")] = DEFAULTS.optimisation.device,
    seed: Annotated[int, typer.Option(help="Of weights, dropout and order.")] = DEFAULTS.optimisation.seed,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads; one is fastest for a small network.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Reports as JSON lines on standard output.")] = False,
) -> None:
    """Train a stock model on daily bars and save it as an artifact."""
    recipe = Recipe(
        kind=model,
        config=LSTMConfig(hidden=hidden, layers=layers, dropout=dropout),
        target=Target(kind=_target_kind(target), lag=lag, horizons=_integers("horizons", horizons)),
        quantiles=_numbers("quantiles", quantiles),
        encoder_length=encoder_length,
        parts=_splits(splits) if splits else None,
        calendar=calendar,
        optimisation=Optimisation(
            max_epochs=epochs,
            patience=patience,
            batch_size=batch_size,
            accumulate=accumulate,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            clip=clip,
            precision=precision,
            device=device,
            seed=seed,
        ),
    )
    torch.set_num_threads(threads)
    chosen = default_features() if features == "default" else FeatureSet.read(features)
    try:
        trained = train(
            BarPanel.read(bars),
            chosen,
            recipe,
            out,
            consume=_consumer(out, as_json=as_json),
            announce=_announcer(as_json=as_json),
        )
    except LoopError as error:
        raise ConfigurationError(str(error)) from error
    if as_json:
        sys.stdout.write(json.dumps({"kind": "trained", "artifact": str(trained.folder), "card": trained.card}) + "\n")
        return
    console = Console()
    console.print(judgement(trained.told))
    # One line, and plain: a path may hold brackets, and the command is there to be copied.
    console.print(f"Saved {trained.folder}. Next: quantra inspect {trained.folder}", soft_wrap=True, markup=False)


def _consumer(out: Path, *, as_json: bool) -> Consumer:
    """The log beside the artifact, and what the person or program at the screen wants."""
    folder = out.parent / f"{out.name}.run"
    shown = JsonLines(sys.stdout) if as_json else progress_for(sys.stdout)

    def consume(reports: Iterable[Report]) -> Iterator[Report]:
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "reports.jsonl"
        log.unlink(missing_ok=True)  # of a training that was stopped
        return JsonlLog(log)(shown(reports))

    return consume


def _announcer(*, as_json: bool) -> Callable[[str], None]:
    """What tells a person or a program which stage begins."""

    def announce(stage: str) -> None:
        if as_json:
            sys.stdout.write(json.dumps({"kind": "stage", "stage": stage}) + "\n")
            sys.stdout.flush()
        else:
            Console().print(f"{stage} …", style="dim")

    return announce


def _target_kind(text: str) -> TargetKind:
    try:
        return TargetKind(text)
    except ValueError as error:
        raise ConfigurationError(f"target is {text!r}, but must be one of {[k.value for k in TargetKind]}") from error


def _splits(text: str) -> Splits:
    try:
        ranges = [(_session(first), _session(last)) for first, last in (part.split("/") for part in text.split(","))]
    except ValueError as error:
        raise ConfigurationError(
            f"splits is {text!r}, but must be four ranges of dates with commas, such as 2000-01-03/2007-12-31,…"
        ) from error
    return Splits.by_dates(ranges)


def _session(text: str) -> int:
    """Yyyymmdd of an ISO date."""
    return int(date.fromisoformat(text.strip()).strftime("%Y%m%d"))


def _integers(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigurationError(
            f"{name} is {text!r}, but must be whole numbers with commas, such as 1,5,20"
        ) from error


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigurationError(f"{name} is {text!r}, but must be numbers with commas, such as 0.1,0.5,0.9") from error
