"""Facts of each symbol that stay the same, such as its sector or the size of its market."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from predictor.errors import CovariatesError

FloatArray = NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StaticTable:
    """One row a symbol. A column whose every entry is a number may be read both as numbers and as texts.

    Attributes:
        symbols: R unique names.
        numbers: float64 [R] by column name, NaN = unknown.
        texts: One text a row by column name, empty = unknown.
    """

    symbols: tuple[str, ...]
    numbers: Mapping[str, FloatArray]
    texts: Mapping[str, tuple[str, ...]]

    @property
    def names(self) -> tuple[str, ...]:
        """Every column."""
        return tuple(self.texts)

    def numbers_of(self, name: str, symbols: Sequence[str]) -> FloatArray:
        """[S] of a column of numbers; NaN for a symbol that the table lacks.

        Raises:
            CovariatesError: The column holds texts.
        """
        if name not in self.numbers:
            symbol = next(iter(self.without_number(name)), "none")
            raise CovariatesError(
                f"static covariate {name} must be a number for every symbol, but that of {symbol} is not; leave a cell "
                "empty where it is unknown"
            )
        place = {symbol: k for k, symbol in enumerate(self.symbols)}
        values = np.append(self.numbers[name], np.nan)
        return values[[place.get(symbol, -1) for symbol in symbols]]

    def without_number(self, name: str) -> tuple[str, ...]:
        """The symbols of which a column says something that is no number."""
        return tuple(
            symbol for symbol, text in zip(self.symbols, self.texts[name], strict=True) if text and not _is_number(text)
        )

    def texts_of(self, name: str, symbols: Sequence[str]) -> tuple[str, ...]:
        """One a symbol; empty for a symbol that the table lacks."""
        texts = dict(zip(self.symbols, self.texts[name], strict=True))
        return tuple(texts.get(symbol, "") for symbol in symbols)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # which Python takes and files do not
