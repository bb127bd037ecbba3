"""Tables as a page shows them: every number as text, and in full beside it for programs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One number."""

    value: float | None
    """In full; None where there is none."""
    text: str
    beside: str = ""
    """Small below the number, such as its interval."""
    is_best: bool = False
    """Of its column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row."""

    name: str
    cells: tuple[Cell, ...]
    is_model: bool = False
    """Marked, as the row that the page is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table; all its lines have a cell a column."""

    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    corner: str = ""
    """Above the names of the lines."""
