"""Annotations that turn dataclass fields into command-line flags; see `predictor.cli.flags`.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Optimisation:
        batch_size: Annotated[int, Flag("Windows per micro-batch.", minimum=1)] = 64

adds the flag `--batch-size` to every command that takes an `Optimisation`.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from predictor.errors import ConfigurationError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance as Dataclass
else:  # the type exists for type checkers only
    Dataclass = object

SettingsT = TypeVar("SettingsT", bound=Dataclass)
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Flag:
    """The flag of a field, used in its annotation; a field without one is not a flag.

    Attributes:
        help: help text.
        name: name of the command's parameter, if it differs from the field's.
        spelling: the flag as typed, if it differs from the name with dashes.
        metavar: placeholder of the value in the help.
        minimum: smallest allowed value.
        maximum: largest allowed value.
        shown_default: text that the help shows as the default, if the default depends on other settings.
        parse: parses the value from a string. Raises ValueError or QuantraError.
        none_text: string that means None, if there is one; used with `parse`.
        check: raises ValueError for an invalid value.
    """

    help: str
    _: KW_ONLY
    name: str = ""
    spelling: str = ""
    metavar: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    shown_default: str = ""
    parse: Callable[[str], object] | None = None
    none_text: str | None = None
    check: Callable[[Any], None] | None = None


@dataclass(frozen=True)
class ParsedFlags(Generic[SettingsT]):
    """The settings, of one dataclass or several, whose flags are on the command line."""

    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values by field name, each of the field's type."""
    flags: Mapping[str, str] = field(default_factory=dict[str, str])
    """Flags as typed, such as `--batch-size`, by field name."""

    def over(self, settings: SettingsT) -> SettingsT:
        """Replace the fields of `settings` whose flags are on the command line."""
        return replace(settings, **self.values)

    def value(self, name: str, otherwise: ValueT) -> ValueT:
        """The value of one field; `otherwise` if its flag is not on the command line."""
        return self.values.get(name, otherwise)


@final
class FlagSubset:
    """Annotation of a command's dataclass parameter: the fields that are flags of this command."""

    def __init__(self, *names: str) -> None:
        self.names = names


@final
class FlagsOf:
    """Annotation of a command's parameter with a protocol type: the dataclasses whose fields are flags."""

    def __init__(self, *kinds: type[Dataclass]) -> None:
        self.kinds = kinds


def parse_integers(name: str, text: str) -> tuple[int, ...]:
    """Parse comma-separated integers.

    Raises:
        ConfigurationError: one is not an integer; the message has the setting's name.
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigurationError(f"{name} is {text!r}, but must be comma-separated integers, such as 1,5,20") from error


def parse_numbers(name: str, text: str) -> tuple[float, ...]:
    """Parse comma-separated numbers.

    Raises:
        ConfigurationError: one is not a number; the message has the setting's name.
    """
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigurationError(
            f"{name} is {text!r}, but must be comma-separated numbers, such as 0.1,0.5,0.9"
        ) from error
