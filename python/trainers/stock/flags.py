"""The flags that every command of the stock models has, each written once, and what their texts mean."""

from collections.abc import Iterable
from datetime import date
from typing import Annotated, Final

import typer

from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError
from predictor.features import CovariateFields, FeatureSet, alpha158_features, default_features
from predictor.networks import KINDS, TargetKind, kind_named
from trainers.stock.recipe import Recipe, Scale
from trainers.stock.splits import Splits

OWN = "the kind's own"

ModelOption = Annotated[str, typer.Option(help=f"Network kind: {', '.join(KINDS)}.")]
FeaturesOption = Annotated[str, typer.Option(help="A file of feature expressions, `default` or `alpha158`.")]
KnownOption = Annotated[
    str,
    typer.Option(metavar="NAME,…", help="Covariates whose value of a future session is known ahead of it."),
]
CalendarOption = Annotated[str, typer.Option(help="Exchange code, such as XNYS; weekdays, or empty: Monday to Friday.")]
TargetOption = Annotated[str, typer.Option(help="log-return or log-volatility.")]
HorizonsOption = Annotated[str, typer.Option(help="Trading days.")]
QuantilesOption = Annotated[str, typer.Option(help="Levels between 0 and 1.")]
LagOption = Annotated[
    int | None, typer.Option(help="0: returns from the last close; 1: from the next.", show_default="0; graph: 1")
]
SplitsOption = Annotated[
    str,
    typer.Option(
        metavar="FIRST/LAST,…",
        help="Sessions of train, selection, calibration and test: 2000-01-03/2007-12-31,…; empty: by shares.",
    ),
]
ScaleOption = Annotated[
    Scale | None,
    typer.Option(
        help="Units to learn in: har, garch or mix forecast each window's volatility, window measures it.",
        show_default="har; garch: garch",
    ),
]
EncoderLengthOption = Annotated[int, typer.Option(help="Sessions that the network reads.")]
EpochsOption = Annotated[int | None, typer.Option(min=1, help="Epochs at most.", show_default=OWN)]
PatienceOption = Annotated[int, typer.Option(min=1, help="Epochs without improvement before it ends.")]


def _listed(values: Iterable[float]) -> str:
    """Numbers as a flag writes them, such as 1,5,20."""
    return ",".join(f"{value:g}" for value in values)


HORIZONS = _listed(Recipe().target.horizons)
QUANTILES = _listed(Recipe().quantiles)


def features_named(name: str, covariates: CovariateFields | None = None) -> FeatureSet:
    """The feature set of that name, or of the file at that path.

    Args:
        name: `default`, `alpha158` or a path.
        covariates: columns that the file's expressions may read; one that none of them reads becomes a feature.
    """
    beside = covariates or CovariateFields()
    named = {"default": default_features, "alpha158": alpha158_features}
    chosen = named[name]() if name in named else FeatureSet.read(name, beside)
    return chosen.with_covariates(beside)


def covariate_fields(covariates: CovariateSource, known: str = "") -> CovariateFields:
    """The columns of files as fields of the feature language.

    Args:
        covariates: the files.
        known: names, with commas, of those whose value of a future session is known ahead; the others are observed.

    Raises:
        ConfigurationError: no file has such a column.
    """
    names, ahead = covariates.series_names, [name.strip() for name in known.split(",") if name.strip()]
    strangers = [name for name in ahead if name not in names]
    if strangers:
        raise ConfigurationError(
            f"known inputs {', '.join(strangers)} are in no covariate file; the files have {', '.join(names) or 'none'}"
        )
    return CovariateFields(
        observed=tuple(name for name in names if name not in ahead),
        known=tuple(name for name in names if name in ahead),
    )


def lag_of(model: str, given: int | None) -> int:
    """Nobody trades at the close that made a ranking, so a model that ranks stocks begins one session later."""
    if given is not None:
        return given
    return 1 if kind_named(model).is_panel_model else 0


def scale_of(model: str, given: Scale | None) -> Scale:
    """A model that is its scale alone has that of its name, others HAR where nothing else is asked for."""
    return given or ("garch" if model == "garch" else "har")


LEARNING: Final = (
    "epochs",
    "patience",
    "batch_size",
    "accumulate",
    "learning_rate",
    "weight_decay",
    "schedule",
    "ranking_weight",
    "clip",
    "ema",
    "precision",
    "oom",
    "nonfinite",
    "compiled",
)
"""Parameters of the commands that say how weights are learnt."""


def refuse_learning(context: typer.Context, model: str) -> None:
    """Refuse flags that say how weights are learnt, given to a model that has none.

    Raises:
        typer.BadParameter: naming the flags.
    """
    if kind_named(model).learns:
        return
    flags = given_flags(context, LEARNING).values()
    if flags:
        raise typer.BadParameter(
            f"{', '.join(flags)} say how weights are learnt, but model {model} has none; leave them out"
        )


def given_flags(context: typer.Context, names: Iterable[str]) -> dict[str, str]:
    """Those of a command's parameters that stand on the command line, with their flags, in the order of its help."""
    sources = {name: context.get_parameter_source(name) for name in names}
    given = {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
    return {parameter.name: parameter.opts[0] for parameter in context.command.params if parameter.name in given}


def target_kind(text: str) -> TargetKind:
    """What is forecast.

    Raises:
        ConfigurationError: there is no such target.
    """
    try:
        return TargetKind(text)
    except ValueError as error:
        raise ConfigurationError(f"target is {text!r}, but must be one of {[k.value for k in TargetKind]}") from error


def splits_of(text: str) -> Splits | None:
    """Four parts by their dates; None if the text is empty.

    Raises:
        ConfigurationError: it is not four ranges of dates that follow each other.
    """
    if not text:
        return None
    try:
        ranges = [(_session(first), _session(last)) for first, last in (part.split("/") for part in text.split(","))]
    except ValueError as error:
        raise ConfigurationError(
            f"splits is {text!r}, but must be four ranges of dates with commas, such as 2000-01-03/2007-12-31,…"
        ) from error
    return Splits.by_dates(ranges)


def integers(name: str, text: str) -> tuple[int, ...]:
    """Whole numbers with commas.

    Raises:
        ConfigurationError: naming the flag.
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigurationError(
            f"{name} is {text!r}, but must be whole numbers with commas, such as 1,5,20"
        ) from error


def numbers(name: str, text: str) -> tuple[float, ...]:
    """Numbers with commas.

    Raises:
        ConfigurationError: naming the flag.
    """
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigurationError(f"{name} is {text!r}, but must be numbers with commas, such as 0.1,0.5,0.9") from error


def session_of(flag: str, text: str) -> int:
    """Yyyymmdd of an ISO date.

    Raises:
        typer.BadParameter: it is none.
    """
    try:
        return _session(text)
    except ValueError as error:
        raise typer.BadParameter(f"{flag} is {text!r}, but must be a date such as 2011-01-03") from error


def _session(text: str) -> int:
    """Yyyymmdd of an ISO date."""
    return int(date.fromisoformat(text.strip()).strftime("%Y%m%d"))
