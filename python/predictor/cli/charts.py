"""Charts as one HTML file that loads nothing."""

from pathlib import Path
from typing import TYPE_CHECKING

from predictor.replacement import replace_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plotly.graph_objects import Figure

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Quantra</title>
</head>
<body>
{charts}
</body>
</html>
"""


def write_charts(path: Path, figures: "Sequence[Figure]") -> None:
    """Write a page with these figures below each other; it appears whole or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    parts = [
        figure.to_html(full_html=False, include_plotlyjs=place == 0, div_id=f"chart-{place + 1}")
        for place, figure in enumerate(figures)
    ]
    replace_file(path, _PAGE.format(charts="\n".join(parts)).encode())
