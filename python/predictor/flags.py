"""What a setting says of itself to a command line, beside the field that holds it. Needs no package of its own.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Optimisation:
        batch_size: Annotated[int, Flag("Windows per micro-batch.", minimum=1)] = 64

is the flag `--batch-size` of every command that takes an `Optimisation`; see `predictor.cli.flags`.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, Field, dataclass, field, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar, final

from predictor.errors import ConfigurationError


class Dataclass(Protocol):
    """An instance of any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


SettingsT = TypeVar("SettingsT", bound=Dataclass)
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Flag:
    """The flag of a field, in its annotation; a field without one is no flag.

    Attributes:
        help: for a person.
        name: of the command's parameter, where it is not the field's.
        spelling: on the command line, where it is not the name with dashes.
        metavar: what stands for the value in the help.
        minimum: the least value.
        maximum: the largest value.
        own: where other settings decide on the default, what the help shows in its place.
        read: makes the value of a text, which is the flag's type then. Raises ValueError, or an error of Quantra.
        none: the text that means None, where values are read; None where every text is a value.
        check: raises ValueError for a value that cannot be.
    """

    help: str
    _: KW_ONLY
    name: str = ""
    spelling: str = ""
    metavar: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    own: str = ""
    read: Callable[[str], object] | None = None
    none: str | None = None
    check: Callable[[Any], None] | None = None


@dataclass(frozen=True)
class ParsedFlags(Generic[SettingsT]):
    """Those settings of a dataclass, or of any of some, whose flags stand on the command line."""

    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """By the field's name, each of the field's type."""
    flags: Mapping[str, str] = field(default_factory=dict[str, str])
    """Their flags as they are spelt, such as `--batch-size`, by the field's name."""

    def over(self, own: SettingsT) -> SettingsT:
        """The settings with those that were given in their place."""
        return replace(own, **self.values)

    def value(self, name: str, otherwise: ValueT) -> ValueT:
        """One field's value, if it was given."""
        return self.values.get(name, otherwise)


@final
class FlagSubset:
    """Beside a dataclass in the annotation of a command's parameter: the fields that are flags of this command."""

    def __init__(self, *names: str) -> None:
        self.names = names


@final
class FlagsOf:
    """Beside a protocol in the annotation of a command's parameter: the dataclasses whose fields are flags."""

    def __init__(self, *kinds: type[Dataclass]) -> None:
        self.kinds = kinds


def integers(name: str, text: str) -> tuple[int, ...]:
    """Whole numbers with commas.

    Raises:
        ConfigurationError: naming the setting.
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigurationError(
            f"{name} is {text!r}, but must be whole numbers with commas, such as 1,5,20"
        ) from error


def numbers(name: str, text: str) -> tuple[float, ...]:
    """Numbers with commas.

    Raises:
        ConfigurationError: naming the setting.
    """
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigurationError(f"{name} is {text!r}, but must be numbers with commas, such as 0.1,0.5,0.9") from error
