"""Settings by the names of their flags, for callers in Python.

Which there are, of which type, in which range, and what a text means is said once, beside the field of the dataclass
that holds the setting (`predictor.flags`); here a value is checked against that.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from enum import Enum
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from predictor.errors import ConfigurationError
from predictor.flags import Dataclass, Flag, ParsedFlags, SettingsT

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
        """As the flag is spelt, without its dashes: `epochs` of `--epochs`."""
        return self.flag.spelling.lstrip("-").replace("-", "_") or self.flag.name or self.field

    def value(self, given: object) -> Any:
        """What was given, as the field has it; None if it is a text that means None.

        Raises:
            ConfigurationError: it cannot be; the message begins with the name.
        """
        if isinstance(given, str) and self.flag.read is not None:
            return None if given == self.flag.none else self._told(self.flag.read, given)
        value = typed(self.name, self.kind, given)
        self._check_range(value)
        if self.flag.check is not None:
            self._told(self.flag.check, value)
        return value

    def _told(self, judge: Callable[[Any], Any], given: object) -> Any:
        try:
            return judge(given)
        except ConfigurationError:
            raise
        except ValueError as error:
            raise ConfigurationError(f"{self.name}: {error}") from error

    def _check_range(self, value: Any) -> None:
        low, high = self.flag.minimum, self.flag.maximum
        if (low is not None and value < low) or (high is not None and value > high):
            end = "" if high is None else f" and at most {high:g}"
            raise ConfigurationError(f"{self.name} is {value:g}, but must be at least {low:g}{end}")


def settings_of(owner: type[Dataclass]) -> Iterator[FlagSetting]:
    """The settings of a dataclass, its own and those that it inherits."""
    hints = get_type_hints(owner, include_extras=True)
    for field in fields(owner):
        hint = hints[field.name]
        if get_origin(hint) is Annotated:
            kind, *notes = get_args(hint)
            yield from (FlagSetting(field=field.name, kind=kind, flag=note) for note in notes if isinstance(note, Flag))


def asked_for(owner: type[SettingsT], values: Mapping[str, object]) -> ParsedFlags[SettingsT]:
    """Those values that are settings of this dataclass, checked; None was not given.

    Args:
        owner: the dataclass.
        values: by the settings' names; those of others are passed over.

    Raises:
        ConfigurationError: a value cannot be.
    """
    given = [(one, values[one.name]) for one in settings_of(owner) if values.get(one.name) is not None]
    held = [(one, value) for one, value in ((one, one.value(value)) for one, value in given) if value is not None]
    return ParsedFlags({one.field: value for one, value in held}, {one.field: one.name for one, _ in held})


def typed(name: str, kind: Any, given: object) -> Any:
    """A value as a type wants it, which may take it in another form: a list as a tuple, a text as a choice.

    Raises:
        ConfigurationError: it is of another type.
    """
    if get_origin(kind) is UnionType:
        (kind,) = (part for part in get_args(kind) if part is not NoneType)
    if get_origin(kind) is Literal:
        return _chosen(name, get_args(kind), given)
    if get_origin(kind) is tuple:
        return _several(name, get_args(kind)[0], given)
    if issubclass(kind, Enum):
        return kind(_chosen(name, tuple(choice.value for choice in kind), given))
    accepted, told = _PLAIN.get(kind, ((kind,), f"a {kind.__name__}"))
    if not isinstance(given, accepted) or (isinstance(given, bool) and kind is not bool):
        raise ConfigurationError(f"{name} is {given!r}, but must be {told}")
    return kind(given) if kind in _PLAIN else given


_PLAIN: Final[Mapping[type, tuple[tuple[type, ...], str]]] = {
    bool: ((bool,), "True or False"),
    int: ((Integral,), "a whole number"),
    float: ((Real,), "a number"),
    str: ((str, Path), "a text"),
}
"""Types that are made anew of what was given: of NumPy's numbers Python's own. Which is taken, and in words."""


def _chosen(name: str, choices: tuple[str, ...], given: object) -> str:
    if given in choices:
        return str(given)
    meant = f"; did you mean {', '.join(near)}?" if (near := nearest(str(given), choices)) else ""
    raise ConfigurationError(f"{name} is {given!r}, but must be one of {', '.join(map(repr, choices))}{meant}")


def _several(name: str, kind: type, given: Any) -> tuple[Any, ...]:
    try:
        parts = tuple(given)
    except TypeError as error:
        words = "whole numbers" if kind is int else "numbers"
        raise ConfigurationError(f"{name} is {given!r}, but must be {words} in a list, such as [{given}]") from error
    return tuple(typed(name, kind, part) for part in parts)


def nearest(name: str, known: tuple[str, ...]) -> list[str]:
    """The names that somebody may have meant, the likeliest alone."""
    begun = [one for one in known if one.startswith(name) or name.startswith(one)]
    return get_close_matches(name, known, n=1) or begun[:1]


def telling_names(kind: type[KindT]) -> type[KindT]:
    """The class as it is, which also tells its settings' names to whoever gives it another one."""
    plain = kind.__init__
    known = tuple(signature(plain).parameters)[1:]

    @wraps(plain)
    def begin(self: Any, *values: object, **given: object) -> None:
        if values:
            raise TypeError(f"{kind.__name__} takes its settings by name: {kind.__name__}({known[0]}={values[0]!r})")
        strangers = [name for name in given if name not in known]
        if strangers:
            near = nearest(strangers[0], known)
            meant = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(known)}"
            raise TypeError(f"{kind.__name__} has no setting {strangers[0]}{meant}")
        plain(self, **given)

    kind.__init__ = begin
    return kind
