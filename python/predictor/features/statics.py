"""Encoding of static covariates as input columns of a network.

A category has one column per known string and one for `unknown`, one-hot encoded. A number has two columns: its scaled
and clipped value, 0 if unknown, and an indicator that is 1 if it is unknown.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Final, Self, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.canonical import Json, Record, read_as
from predictor.covariates import check_name
from predictor.errors import ConfigurationError, CovariateMissingError, format_names

ValueT = TypeVar("ValueT")

UNKNOWN: Final = "unknown"
DEFAULT_CLIP: Final = 8.0
"""Largest absolute scaled value."""
MAX_VARIABLES: Final = 200
MAX_CATEGORIES: Final = 500


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StaticNumber:
    """A number per symbol, standardised over the training symbols.

    Attributes:
        name: The covariate's name.
        center: Mean over the training symbols.
        scale: Standard deviation over the training symbols, positive.
    """

    name: str
    center: float
    scale: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.center) and 0 < self.scale < np.inf):
            raise ConfigurationError(
                f"static covariate {self.name} has center {self.center:g} and scale {self.scale:g}, but both must be "
                "finite, and the scale positive"
            )

    @classmethod
    def fit(cls, name: str, values: FloatArray) -> Self:
        """Fit to the values of the training symbols [S], NaN = unknown.

        Raises:
            ConfigurationError: The known values are all equal, or there are none.
        """
        known = values[np.isfinite(values)]
        scale = float(np.std(known)) if known.size else 0.0
        if not scale > 0:
            raise ConfigurationError(
                f"static covariate {name} does not vary between the training symbols ({known.size} of {len(values)} "
                "have one); leave it out"
            )
        return cls(name=name, center=float(np.mean(known)), scale=scale)

    @property
    def width(self) -> int:
        """Number of columns."""
        return 2

    @property
    def unknown(self) -> tuple[float, ...]:
        """The columns of an unknown value."""
        return (0.0, 1.0)

    def encode(self, values: FloatArray) -> NDArray[np.float32]:
        """Encode S numbers, NaN = unknown, as [S, 2]."""
        known = np.isfinite(values)
        scaled = np.clip((np.where(known, values, self.center) - self.center) / self.scale, -DEFAULT_CLIP, DEFAULT_CLIP)
        return np.stack([scaled, ~known], axis=1).astype(np.float32)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StaticCategory:
    """A string per symbol.

    Attributes:
        name: The covariate's name.
        categories: The distinct strings of the training symbols, sorted.
    """

    name: str
    categories: tuple[str, ...]

    def __post_init__(self) -> None:
        known = self.categories
        if not known or any(a >= b for a, b in pairwise(known)) or "" in known:
            raise ConfigurationError(f"static covariate {self.name} must have distinct, sorted categories")
        if len(known) > MAX_CATEGORIES:
            raise ConfigurationError(
                f"static covariate {self.name} has {len(known)} categories, but at most {MAX_CATEGORIES} are allowed; "
                "group them, or leave it out"
            )

    @classmethod
    def fit(cls, name: str, texts: Sequence[str]) -> Self:
        """Fit to the strings of the training symbols, empty = unknown.

        Raises:
            ConfigurationError: The known strings are empty or too many.
        """
        return cls(name=name, categories=tuple(sorted(set(texts) - {""})))

    @property
    def width(self) -> int:
        """Number of columns: one per category and one for `unknown`."""
        return len(self.categories) + 1

    @property
    def unknown(self) -> tuple[float, ...]:
        """The columns of an unknown value."""
        return (*(0.0 for _ in self.categories), 1.0)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode S strings as [S, width]; a string that no training symbol has is unknown."""
        column_of = {text: k for k, text in enumerate(self.categories)}
        return np.eye(self.width, dtype=np.float32)[[column_of.get(text, self.width - 1) for text in texts]]


StaticVariable = StaticNumber | StaticCategory


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StaticFeatures:
    """The fitted static variables of a model; numbers first, then categories.

    Raises:
        ConfigurationError: There are too many, or a name is repeated or invalid.
    """

    numbers: tuple[StaticNumber, ...] = ()
    categories: tuple[StaticCategory, ...] = ()

    def __post_init__(self) -> None:
        if len(self.names) > MAX_VARIABLES:
            raise ConfigurationError(
                f"there are {len(self.names)} static covariates, but at most {MAX_VARIABLES} are allowed"
            )
        for name in self.names:
            check_name(name, "static covariate")
        twice = sorted(name for name, count in Counter(self.names).items() if count > 1)
        if twice:
            raise ConfigurationError(f"static covariates appear twice: {', '.join(twice)}; rename them")

    @classmethod
    def fit(cls, numbers: Mapping[str, FloatArray], texts: Mapping[str, Sequence[str]]) -> Self:
        """Fit every variable on the training symbols.

        Args:
            numbers: float64 [S] by name, NaN = unknown.
            texts: S strings by name, empty = unknown.

        Raises:
            ConfigurationError: A variable cannot be fitted.
        """
        return cls(
            numbers=tuple(StaticNumber.fit(name, values) for name, values in numbers.items()),
            categories=tuple(StaticCategory.fit(name, values) for name, values in texts.items()),
        )

    @property
    def variables(self) -> tuple[StaticVariable, ...]:
        """All variables, in the order of their columns."""
        return (*self.numbers, *self.categories)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables."""
        return tuple(variable.name for variable in self.variables)

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of columns of each variable."""
        return tuple(variable.width for variable in self.variables)

    @property
    def unknown(self) -> NDArray[np.float32]:
        """The columns [C] of a symbol without any known value."""
        return np.array([value for variable in self.variables for value in variable.unknown], np.float32)

    def encode(
        self, symbols: int, numbers: Mapping[str, FloatArray], texts: Mapping[str, Sequence[str]]
    ) -> NDArray[np.float32]:
        """Encode all variables of S symbols as [S, C].

        Args:
            symbols: Number of symbols S.
            numbers: float64 [S] by name, NaN = unknown.
            texts: S strings by name, empty = unknown.

        Raises:
            CovariateMissingError: A variable is missing or of the other kind.
        """
        columns = [np.zeros((symbols, 0), np.float32)]
        columns += [number.encode(_find_values(number.name, numbers, "numbers", texts)) for number in self.numbers]
        columns += [
            category.encode(_find_values(category.name, texts, "texts", numbers)) for category in self.categories
        ]
        return np.concatenate(columns, axis=1)

    def warnings(
        self, symbols: Sequence[str], numbers: Mapping[str, FloatArray], texts: Mapping[str, Sequence[str]]
    ) -> Iterator[str]:
        """Warnings about unknown values of symbols; arguments as in `encode`."""
        for number in self.numbers:
            absent = [symbol for symbol, value in zip(symbols, numbers[number.name], strict=True) if np.isnan(value)]
            if absent:
                yield f"{format_names(absent)}: {number.name} is unknown, and the forecast is made without it"
        for category in self.categories:
            pairs, known = list(zip(symbols, texts[category.name], strict=True)), {"", *category.categories}
            new = {symbol: text for symbol, text in pairs if text not in known}
            if new:
                values = format_names(sorted({repr(text) for text in new.values()}))
                yield (
                    f"{format_names(list(new))}: {category.name} is {values}, which no training symbol had; it "
                    f"counts as {UNKNOWN}"
                )
            absent = [symbol for symbol, text in pairs if not text]
            if absent:
                yield f"{format_names(absent)}: {category.name} is unknown, and the forecast is made without it"

    def to_json(self) -> dict[str, Json]:
        """Encode for features.json."""
        return {
            "numbers": list(map(asdict, self.numbers)),
            "categories": list(map(asdict, self.categories)),
            "clip": DEFAULT_CLIP,
        }

    @classmethod
    def from_json(cls, record: Record) -> Self:
        """Decode from features.json.

        Raises:
            ArtifactError: A key is unknown, missing or invalid; the message names it.
            ConfigurationError: A variable is invalid.
        """
        numbers, categories = record.records("numbers"), record.records("categories")
        if record.number("clip") != DEFAULT_CLIP:
            raise record.make_error("clip", f"must be {DEFAULT_CLIP:g}")
        record.end()
        return cls(
            numbers=tuple(read_as(entry, StaticNumber, strict=True) for entry in numbers),
            categories=tuple(read_as(entry, StaticCategory, strict=True) for entry in categories),
        )


def _find_values(name: str, group: Mapping[str, ValueT], kind: str, other: Mapping[str, object]) -> ValueT:
    if name in group:
        return group[name]
    problem = f"must be {kind}" if name in other else f"is missing, but the model reads it, as {kind}, one per symbol"
    raise CovariateMissingError(f"static covariate {name} {problem}", metadata={"covariate": name})
