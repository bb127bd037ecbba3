"""Whom a question goes to, an artifact in this process or a server, and what is sent with it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

import typer

from predictor.bars import BarPanel
from predictor.catalog import ModelInfo
from predictor.client import QuantraClient
from predictor.covariates import Covariates, CovariateSource
from predictor.forecast import Explanation, Forecast
from predictor.instance import Instance, Query
from predictor.interruption import loading


class Answerer(Protocol):
    """What Forecaster and QuantraClient have in common."""

    def __enter__(self) -> Self:
        """The answerer itself."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Let go of what it holds."""
        ...

    def predict(self, bars: Instance, /) -> Forecast:
        """The forecast of one panel."""
        ...

    def explain(self, query: Query, /) -> Explanation:
        """The reasons behind a forecast."""
        ...

    def model(self) -> ModelInfo:
        """What the model reads and forecasts."""
        ...


def open_source(artifact: Path | None, server: str, model: str, device: str) -> Answerer:
    """The one that the options name.

    Raises:
        typer.BadParameter: neither or both of artifact and server, or a model without a server.
        ArtifactError: the artifact is damaged.
    """
    if (artifact is None) == (not server):
        raise typer.BadParameter("give either --artifact DIR or --server HOST:PORT")
    if artifact is None:
        return QuantraClient(server, model)
    if model:
        raise typer.BadParameter("--model goes with --server; an artifact is one model already")
    with loading():
        from predictor.forecaster import Forecaster  # brings torch, which a server's client need not wait for

    return Forecaster.load(artifact, device)


def bars_to_send(source: Answerer, bars: BarPanel, symbols: Sequence[str]) -> BarPanel:
    """The bars of these symbols alone, unless the model looks across symbols; all of them where none is named.

    Raises:
        BarsError: there is no such symbol.
    """
    if not symbols:
        return bars
    chosen = bars.select(symbols)
    return bars if source.model().is_panel_model else chosen


class Beside(NamedTuple):
    """What is sent beside bars."""

    covariates: Covariates
    doubts: tuple[str, ...]
    """Lines for whoever gave the files."""


def beside_bars(source: Answerer, bars: BarPanel, paths: list[Path] | None, static: Path | None) -> Beside:
    """The columns of the files that the model reads, as known at the last bar."""
    if not paths and static is None:
        return Beside(Covariates(), ())
    files, model = CovariateSource.read(paths or (), static), source.model()
    return Beside(files.for_model(model, bars), tuple(files.doubts(model.covariates)))


def doubted(explanation: Explanation, doubts: tuple[str, ...]) -> Explanation:
    """The explanation with these warnings before its own."""
    return replace(
        explanation,
        attributions=tuple(replace(one, warnings=(*doubts, *one.warnings)) for one in explanation.attributions),
    )
