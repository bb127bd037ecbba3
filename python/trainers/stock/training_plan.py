"""Settings of a training run from Python, checked and merged with the defaults of the network kind."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from difflib import get_close_matches
from enum import Enum
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

from predictor.bars import BarPanel, Frame, read_bars
from predictor.covariates import CovariateSource
from predictor.dates import DateLike
from predictor.errors import ConfigurationError, format_date
from predictor.flags import Dataclass, Flag, ParsedFlags, SettingsT
from predictor.networks import KINDS, Edges, Target, get_kind
from trainers.options import RunOptions
from trainers.stock.bar_requirements import recognise_calendar
from trainers.stock.card import identify_features
from trainers.stock.edges import read_edges
from trainers.stock.feature_cache import FeatureCache, map_bars
from trainers.stock.feature_selection import FeatureSelection, check_features, list_covariate_fields, load_features
from trainers.stock.recipe import Optimisation, RecipeChanges, StockRecipe, choose_default_optimisation, recipe_of
from trainers.stock.splits import SplitShares, parse_day_flag
from trainers.stock.training_data import ParentArtifact, TrainingMaterial

Bars = BarPanel | Frame | str | Path
"""A panel, a DataFrame or a file of bars."""

CovariateFiles = CovariateSource | Sequence[str | Path]
"""Loaded covariates, or their files."""


def load_bars(source: Bars, cache: FeatureCache | None = None) -> BarPanel:
    """Read bars, unless they are a panel already; with a cache, they are memory-mapped.

    Raises:
        QuantraError: see `BarPanel.of` and `read_bars`.
    """
    if not isinstance(source, BarPanel):
        source = read_bars(source) if isinstance(source, str | Path) else BarPanel.of(source)
    return map_bars(source, cache)


def read_covariates(files: CovariateFiles) -> CovariateSource:
    """Read covariate files, unless they are loaded already.

    Raises:
        CovariatesError: a file is malformed.
    """
    if isinstance(files, str | Path):
        raise ConfigurationError(f"covariates is {files}, but must be a list of files, such as [{str(files)!r}]")
    return files if isinstance(files, CovariateSource) else CovariateSource.read(files)


def parse_day(name: str, day: DateLike) -> int:
    """The day as yyyymmdd.

    Raises:
        ConfigurationError: the day does not exist; the message begins with the name.
    """
    text = day if isinstance(day, str) else f"{day:%Y-%m-%d}" if isinstance(day, date) else format_date(int(day))
    try:
        return parse_day_flag(name, text)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


KindT = TypeVar("KindT")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagSetting:
    """One field with a flag."""

    field: str
    kind: Any
    """The field's type."""
    flag: Flag

    @property
    def name(self) -> str:
        """The flag without its dashes: `epochs` of `--epochs`."""
        return self.flag.spelling.lstrip("-").replace("-", "_") or self.flag.name or self.field

    def value(self, raw_value: object) -> Any:
        """Convert a value to the field's type; None if it is the flag's text for None.

        Raises:
            ConfigurationError: the value is invalid; the message begins with the name.
        """
        if isinstance(raw_value, str) and self.flag.parse is not None:
            return None if raw_value == self.flag.none_text else self._call(self.flag.parse, raw_value)
        value = convert_value(self.name, self.kind, raw_value)
        low, high = self.flag.minimum, self.flag.maximum
        if (low is not None and value < low) or (high is not None and value > high):
            end = "" if high is None else f" and at most {high:g}"
            raise ConfigurationError(f"{self.name} is {value:g}, but must be at least {low:g}{end}")
        if self.flag.check is not None:
            self._call(self.flag.check, value)
        return value

    def _call(self, function: Callable[[Any], Any], value: object) -> Any:
        """Call a reader or a check of the flag; its errors name the setting."""
        try:
            return function(value)
        except ConfigurationError:
            raise
        except ValueError as error:
            raise ConfigurationError(f"{self.name}: {error}") from error


def list_settings(owner: type[Dataclass]) -> Iterator[FlagSetting]:
    """The settings of a dataclass, inherited ones included."""
    hints = get_type_hints(owner, include_extras=True)
    for field in fields(owner):
        hint = hints[field.name]
        if get_origin(hint) is Annotated:
            kind, *notes = get_args(hint)
            yield from (FlagSetting(field=field.name, kind=kind, flag=note) for note in notes if isinstance(note, Flag))


def parse_settings(owner: type[SettingsT], values: Mapping[str, object]) -> ParsedFlags[SettingsT]:
    """The values that are settings of this dataclass, checked; None means not given, unlike a flag's text for None.

    Values of other dataclasses are ignored.

    Raises:
        ConfigurationError: a value is invalid.
    """
    settings = [setting for setting in list_settings(owner) if values.get(setting.name) is not None]
    return ParsedFlags(
        {setting.field: setting.value(values[setting.name]) for setting in settings},
        {setting.field: setting.name for setting in settings},
    )


def convert_value(name: str, kind: Any, raw_value: Any) -> Any:
    """Convert a value to a type, such as a list to a tuple or a text to an enum member.

    Raises:
        ConfigurationError: the value is of another type.
    """
    if get_origin(kind) is UnionType:
        kinds = [part for part in get_args(kind) if part is not NoneType]
        kind = next((part for part in kinds[1:] if isinstance(raw_value, part)), kinds[0])
    if get_origin(kind) is Literal:
        return _choose(name, get_args(kind), raw_value)
    if get_origin(kind) is tuple:
        element = get_args(kind)[0]
        try:
            parts = tuple(raw_value)
        except TypeError as error:
            words = "whole numbers" if element is int else "numbers"
            raise ConfigurationError(
                f"{name} is {raw_value!r}, but must be {words} in a list, such as [{raw_value}]"
            ) from error
        return tuple(convert_value(name, element, part) for part in parts)
    if issubclass(kind, Enum):
        return kind(_choose(name, tuple(choice.value for choice in kind), raw_value))
    accepted, description = _PLAIN.get(kind, ((kind,), f"a {kind.__name__}"))
    if not isinstance(raw_value, accepted) or (isinstance(raw_value, bool) and kind is not bool):
        raise ConfigurationError(f"{name} is {raw_value!r}, but must be {description}")
    return kind(raw_value) if kind in _PLAIN else raw_value


_PLAIN: Final[Mapping[type, tuple[tuple[type, ...], str]]] = {
    bool: ((bool,), "True or False"),
    int: ((Integral,), "a whole number"),
    float: ((Real,), "a number"),
    str: ((str, Path), "a text"),
}
"""Types that values are converted to, such as from NumPy numbers: accepted types, and a description."""


def _choose(name: str, choices: tuple[str, ...], raw_value: object) -> str:
    if raw_value in choices:
        return str(raw_value)
    meant = f"; did you mean {', '.join(near)}?" if (near := find_similar_names(str(raw_value), choices)) else ""
    raise ConfigurationError(f"{name} is {raw_value!r}, but must be one of {', '.join(map(repr, choices))}{meant}")


def find_similar_names(name: str, known: tuple[str, ...]) -> list[str]:
    """The known name most similar to `name`, if any."""
    prefixed = [candidate for candidate in known if candidate.startswith(name) or name.startswith(candidate)]
    return get_close_matches(name, known, n=1) or prefixed[:1]


def suggest_names(kind: type[KindT]) -> type[KindT]:
    """A class decorator: an unknown setting raises an error that names the most similar one."""
    plain = kind.__init__
    known = tuple(signature(plain).parameters)[1:]

    @wraps(plain)
    def init(self: Any, *values: object, **keywords: object) -> None:
        if values:
            raise TypeError(f"{kind.__name__} takes its settings by name: {kind.__name__}({known[0]}={values[0]!r})")
        unknown = [name for name in keywords if name not in known]
        if unknown:
            near = find_similar_names(unknown[0], known)
            hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(known)}"
            raise TypeError(f"{kind.__name__} has no setting {unknown[0]}{hint}")
        plain(self, **keywords)

    kind.__init__ = init
    return kind


def set_calendar(
    recipe: StockRecipe, bars: BarPanel, tell: Callable[[str], None], *, setting: str = "--calendar NAME"
) -> StockRecipe:
    """The recipe; one without a calendar gets the calendar that fits the dates of the bars, if there is one.

    `tell` receives the name of a recognised calendar; `setting` is how the caller can choose another one.
    """
    name = recipe.calendar or recognise_calendar(bars)
    if name == recipe.calendar:
        return recipe
    tell(f"calendar: {name} (recognised from the dates; {setting} chooses another)")
    return replace(recipe, calendar=name)


KEPT_WITH_WEIGHTS: Final = "come with the weights that it starts from; leave them out, or train from scratch"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """A recipe, features, run options, parent and edges; see `of`."""

    recipe: StockRecipe
    reads: ParsedFlags[FeatureSelection]
    run: RunOptions
    parent: ParentArtifact | None
    edges: Path | None

    @classmethod
    def of(
        cls, values: Mapping[str, Any], *, recipe: StockRecipe | None, start: Path | None, edges: Path | None
    ) -> Self:
        """Check settings together, and merge them with the defaults.

        The values are by flag name; None means not given.

        Raises:
            ConfigurationError: a value is invalid, the kind has no such setting, or settings contradict each other.
            ArtifactError: the artifact to start from is damaged.
        """
        changes = parse_changes(values, recipe)
        get_kind(changes.kind)
        if start is None:
            needless = describe_unused_flags(changes)
            if needless:
                raise ConfigurationError(needless)
        parent = None if start is None else _load_parent(start, changes, recipe)
        base = inherit_recipe(parent) if parent is not None else recipe or recipe_of(changes.kind)
        final = changes.over(base)
        if edges is not None:
            final.require_graph()
        reads = parse_settings(FeatureSelection, values)
        check_features(reads.over(FeatureSelection()).features)
        run = parse_settings(RunOptions, values).over(RunOptions())
        return cls(recipe=final, reads=reads, run=run, parent=parent, edges=edges)

    def with_calendar_of(self, bars: BarPanel, tell: Callable[[str], None]) -> Self:
        """The plan with the calendar of these bars; see `set_calendar`."""
        if self.parent is not None:
            return self
        return replace(self, recipe=set_calendar(self.recipe, bars, tell, setting="calendar=NAME"))

    def material(self, bars: BarPanel, covariates: CovariateFiles) -> TrainingMaterial:
        """Bars, features and covariates, and the edges of a graph.

        Raises:
            ConfigurationError: features or edges do not fit the files or the parent's weights.
            QuantraError: a file is malformed.
        """
        source = read_covariates(covariates)
        if self.parent is None:
            features = self.reads.over(FeatureSelection()).load(source, self.recipe.calendar)
        else:
            features = self.parent.features
            _refuse(list(find_other_features(self.parent, self.reads, lambda: source)))
        return TrainingMaterial(bars, features, source, load_edges(self.edges, bars, self.recipe), self.parent)


def load_edges(path: Path | None, bars: BarPanel, recipe: StockRecipe) -> Edges | None:
    """Read the edges of a recipe's graph among the symbols of the bars; None without a file.

    Raises:
        ConfigurationError: the network has no graph, or see `read_edges`.
    """
    return None if path is None else read_edges(path, bars.symbols, neighbours=recipe.require_graph().neighbours)


def parse_changes(values: Mapping[str, Any], recipe: StockRecipe | None) -> RecipeChanges:
    """The recipe's settings that were given; the kind defaults to that of `recipe`.

    Raises:
        ConfigurationError: a value is invalid, or the kind is not that of `recipe`.
    """
    changes = parse_settings(StockRecipe, values)
    if recipe is not None:
        if (kind := changes.value("kind", recipe.kind)) != recipe.kind:
            raise ConfigurationError(f"model is {kind}, but the recipe's is {recipe.kind}; leave one of them out")
        changes = ParsedFlags({"kind": recipe.kind, **changes.values}, changes.flags)
    # Whether the kind has the given sizes is checked in `RecipeChanges.over`.
    sizes = {setting.name: setting for kind in KINDS.values() for setting in list_settings(kind.config)}
    given_sizes = {name: size.value(values[name]) for name, size in sizes.items() if values.get(name) is not None}
    return RecipeChanges(
        recipe=changes,
        target=parse_settings(Target, values),
        optimisation=parse_settings(Optimisation, values),
        network=ParsedFlags(given_sizes, {name: name for name in given_sizes}),
    )


def _load_parent(start: Path, changes: RecipeChanges, recipe: StockRecipe | None) -> ParentArtifact:
    if recipe is not None:
        raise ConfigurationError("a recipe is given and an artifact to start from, which has its own; leave one out")
    parent = ParentArtifact.load(start)
    _refuse(list(find_contradictions(parent, changes)))
    return parent


def _refuse(wrong: list[str]) -> None:
    if wrong:
        raise ConfigurationError(f"{'; '.join(wrong)}: these {KEPT_WITH_WEIGHTS}")


EPOCH_FREE_SETTINGS: Final = frozenset({"device", "seed", "deterministic"})
"""Optimisation settings that apply to a model that is not trained in epochs."""


_CHANGEABLE: Final = frozenset({"parts", "calendar", "dropout"})
"""Settings that a training run from a parent may change."""


def describe_unused_flags(changes: RecipeChanges) -> str:
    """Why flags about epochs do not suit a model that is not trained in epochs; empty if none is given."""
    flags = [name for field, name in changes.optimisation.flags.items() if field not in EPOCH_FREE_SETTINGS]
    if get_kind(changes.kind).is_trainable or not flags:
        return ""
    return f"{', '.join(flags)} say how epochs train, but model {changes.kind} has no epochs; leave them out"


def inherit_recipe(parent: ParentArtifact) -> StockRecipe:
    """The parent's recipe, with splits and optimisation reset to the defaults of its kind."""
    kind = parent.recipe.kind
    return replace(parent.recipe, shares=SplitShares(), parts=None, optimisation=choose_default_optimisation(kind))


def find_contradictions(parent: ParentArtifact, changes: RecipeChanges) -> Iterator[str]:
    """Settings that differ from the parent's, as text."""
    recipe = parent.recipe
    yield from _find_others(changes.recipe, recipe)
    yield from _find_others(changes.target, recipe.target)
    yield from _find_others(changes.network, recipe.config)


def find_other_features(
    parent: ParentArtifact, reads: ParsedFlags[FeatureSelection], files: Callable[[], CovariateSource]
) -> Iterator[str]:
    """Feature settings that differ from the parent's, as text; without any, no file is read."""
    if not reads.values:
        return
    known = parent.features.covariates.known
    selection = reads.over(FeatureSelection(known=",".join(known)))
    fields = list_covariate_fields(files(), selection.known)
    if set(fields.known) != set(known):
        yield f"{reads.flags['known']} is {selection.known} and the artifact's {','.join(known) or 'none'}"
    elif "features" in reads.flags and (
        identify_features(load_features(selection.features, parent.recipe.calendar, fields))
        != identify_features(parent.features)
    ):
        yield f"{reads.flags['features']} is {selection.features}, whose features are not the artifact's"


def _find_others(changes: ParsedFlags[SettingsT], inherited: SettingsT) -> Iterator[str]:
    current = {field.name: getattr(inherited, field.name) for field in fields(inherited)}
    for name, flag in changes.flags.items():
        value, current_value = changes.values[name], current.get(name)
        if name not in _CHANGEABLE and value != current_value:
            yield f"{flag} is {_format_value(value)} and the artifact's {_format_value(current_value)}"


def _format_value(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{part:g}" for part in value)
    return "none" if value is None else str(value)
