"""Held-out scores as a table in the terminal."""

from collections.abc import Mapping

from rich.console import Group
from rich.table import Table

from predictor.canonical import Json, Record


def scores_table(card: Mapping[str, Json]) -> Group:
    """The model beside the baselines, best first, and the one sentence about its skill."""
    whole = Record(card, "card")
    scores = whole.record("scores")
    table = Table(title="Held-out scores: pinball loss x 10000, lower is better", title_justify="left")
    table.add_column("")
    for horizon in scores.integers("horizons"):
        table.add_column(f"{horizon} d", justify="right")
    table.add_column("per √day" if _is_return(whole) else "mean", justify="right")
    low, high = scores.numbers("band")
    table.add_column(f"inside {low:g} to {high:g}", justify="right")
    for row in scores.records("rows"):
        figures = [f"{value:.2f}" for value in row.numbers("pinball")]
        band = row.numbers("band_coverage")
        style = "bold" if row.flag("is_model") else None
        coverage = f"{100 * sum(band) / len(band):.0f} %"
        table.add_row(row.text("name"), *figures, f"{row.number('mean'):.3f}", coverage, style=style)
    return Group(table, whole.record("skill").text("sentence"))


def _is_return(card: Record) -> bool:
    return card.record("recipe").text("target") == "log-return"
