"""Figures as light as a page can hold them: texts that many share stand once, and numbers have the digits of a drawing.

`draw.js` puts them together again.
"""

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from predictor.charts.theme import THEME

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_IN_A_SCRIPT: Final = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})
"""What would end or change a script where it stands in the page; only strings hold it, and JSON reads it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFigure:
    """A figure in a page.

    Attributes:
        name: its id there.
        height: pixels.
        drawn: its data and layout as JSON that may stand in a script.
    """

    name: str
    height: int
    drawn: str


@final
class PageFigures:
    """The figures of one page, in the order in which they were added."""

    def __init__(self) -> None:
        self._count = 0
        self._shared: dict[tuple[str, ...], int] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, figure: "Figure") -> PageFigure:
        """The next figure; its theme is left to `common`."""
        self._count += 1
        drawn: dict[str, Any] = json.loads(str(figure.to_json()))
        drawn["layout"].pop("template", None)
        for trace in drawn["data"]:
            self._share(trace)
        height = int(drawn["layout"]["height"])
        return PageFigure(name=f"chart-{self._count}", height=height, drawn=_for_a_script(_light(drawn)))

    def common(self) -> str:
        """What `draw.js` needs besides the figures, as JSON for a script: the theme, and the texts that they share."""
        return _for_a_script({"theme": {"layout": THEME}, "shared": list(self._shared)})

    def _share(self, trace: dict[str, Any]) -> None:
        """Put a number in the place of a trace's texts along x, which are mostly the same dates again and again."""
        across = trace.get("x")
        if isinstance(across, list) and across and all(isinstance(text, str) for text in across):
            trace["x"] = self._shared.setdefault(tuple(across), len(self._shared))


def _light(value: Any) -> Any:
    """The same JSON with float32 in the place of float64: seven digits are more than a drawing shows."""
    if isinstance(value, list):
        return [_light(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("dtype") == "f8":
        numbers = np.frombuffer(base64.b64decode(value["bdata"]), "<f8").astype("<f4")
        return value | {"dtype": "f4", "bdata": base64.b64encode(numbers.tobytes()).decode()}
    return {key: _light(item) for key, item in value.items()}


def _for_a_script(value: Any) -> str:
    return json.dumps(value, separators=(",", ":")).translate(_IN_A_SCRIPT)
