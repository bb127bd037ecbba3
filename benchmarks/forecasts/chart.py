"""A chart of everybody's pinball loss, a panel a task."""

from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from benchmarks.forecasts.results import Entry, Results

OURS, PEER, BASELINE = "#0b6e4f", "#c1666b", "#8d99ae"


def write_chart(results: Sequence[Results], path: Path) -> None:
    """Write an HTML page: means over seeds, the seeds' standard deviation as error bars."""
    figure = make_subplots(rows=1, cols=len(results), subplot_titles=[one.task.name for one in results])
    for column, one in enumerate(results, start=1):
        figure.add_trace(_bars(list(reversed(one.entries))), row=1, col=column)
    figure.update_layout(
        title="Pinball loss of the test windows, lower is better; bars: standard deviation over seeds",
        showlegend=False,
        template="plotly_white",
    )
    figure.write_html(path, include_plotlyjs=True)


def _bars(entries: Sequence[Entry]) -> go.Bar:
    return go.Bar(
        orientation="h",
        x=[entry.mean for entry in entries],
        y=[entry.name for entry in entries],
        error_x={"array": [entry.spread if len(entry.seeds) > 1 else 0.0 for entry in entries]},
        marker_color=[_colour(entry) for entry in entries],
    )


def _colour(entry: Entry) -> str:
    if entry.system is None:
        return BASELINE
    return PEER if entry.system.is_peer else OURS
