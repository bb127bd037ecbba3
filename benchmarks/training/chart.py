"""Numbers as bars of text."""

from collections.abc import Mapping

WIDTH = 48


def bars(title: str, values: Mapping[str, float], *, mark: float = 1.0) -> str:
    """A line for every value, lengths from 0, with a rule where `mark` is."""
    largest = max([mark, *values.values()])
    place = round(mark / largest * WIDTH)
    lines = [_bar(name, value, round(value / largest * WIDTH), place) for name, value in values.items()]
    return "\n".join(["", title, *lines])


def _bar(name: str, value: float, length: int, place: int) -> str:
    cells = ["█" if cell < length else " " for cell in range(WIDTH + 1)]
    cells[place] = "│"
    return f"{name:>28} {''.join(cells)} {value:.2f}"
