"""Whom a question goes to: an artifact in this process, or a server."""

from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import typer

from predictor.catalog import ModelInfo
from predictor.client import QuantraClient
from predictor.forecast import Explanation, Forecast
from predictor.instance import Instance, Query


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
    from predictor.forecaster import Forecaster  # brings torch, which a server's client need not wait for

    return Forecaster.load(artifact, device)
