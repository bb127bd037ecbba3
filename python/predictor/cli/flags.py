"""Commands that take dataclasses: each field with a flag becomes a parameter of the command.

    @with_flags
    def fit(*, bars: BarsFlags, terms: Annotated[ParsedFlags[Terms], FlagSubset("cost_bps")]) -> None:

A dataclass parameter such as `bars` receives an instance. A `ParsedFlags[Terms]` parameter receives only the flags
given on the command line, to override other settings. Fields and other parameters are annotated with a `Flag` or with
typer's options.
"""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import typer

from predictor.flags import Flag, FlagsOf, FlagSubset, ParsedFlags

_CONTEXT: Final = "flags_context"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """One field as a parameter of the command."""

    field: Field[Any]
    kind: Any
    """Its annotated type."""
    flag: Flag | None
    """None if the field has a typer option."""

    @property
    def name(self) -> str:
        return self.field.name if self.flag is None else self.flag.name or self.field.name

    def make_parameter(self, *, required: bool) -> Parameter:
        """Make the parameter for typer."""
        default = self._read_default()
        if default is Parameter.empty and not required:
            default = None
        return Parameter(
            self.name,
            Parameter.KEYWORD_ONLY,
            default=default,
            annotation=_make_annotation(self.name, self.kind, default),
        )

    def _read_default(self) -> Any:
        if self.flag is not None and self.flag.shown_default:
            return None
        if self.field.default is MISSING:
            return Parameter.empty
        return (
            self.field.default
            if self.flag is None or self.flag.parse is None
            else _format_default(self.flag, self.field)
        )

    def keeps_default(self, value: Any) -> bool:
        """Whether the field keeps its default, because the flag was not given and another setting sets its value."""
        return value is None and self.flag is not None and bool(self.flag.shown_default)

    def parse(self, value: Any) -> Any:
        """Convert the parameter's value to the field's."""
        if self.flag is None or self.flag.parse is None or value is None:
            return value
        if value == self.flag.none_text:
            return None
        try:
            return self.flag.parse(value)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """One parameter of the command's function, and its settings."""

    make: Callable[..., Any]
    settings: tuple[_Setting, ...]
    is_partial: bool
    """Whether it takes only flags given on the command line."""

    def pop(self, context: typer.Context, arguments: dict[str, Any]) -> Any:
        """Remove its parameters from the command's arguments, and return its value."""
        raw = [(setting, arguments.pop(setting.name)) for setting in self.settings]
        if not self.is_partial:
            values = {
                setting.field.name: setting.parse(value) for setting, value in raw if not setting.keeps_default(value)
            }
            return self.make(**values)
        parsed = [(setting, setting.parse(value)) for setting, value in raw if _is_given(context, setting.name)]
        spelling = {parameter.name: parameter.opts[0] for parameter in context.command.params}
        return ParsedFlags(
            {setting.field.name: value for setting, value in parsed},
            {setting.field.name: spelling[setting.name] for setting, _ in parsed},
        )


def with_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Turn a function into a command whose flags are the fields of its dataclass parameters."""
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, _Group] = {}
    parameters = [Parameter(_CONTEXT, Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    for name, parameter in signature(function).parameters.items():
        group = _find_group(hints[name])
        if group is None:
            parameters.append(parameter.replace(annotation=_make_annotation(name, hints[name], parameter.default)))
        else:
            groups[name] = group
            parameters += (setting.make_parameter(required=not group.is_partial) for setting in group.settings)

    @wraps(function)
    def command(**arguments: Any) -> None:
        context = arguments.pop(_CONTEXT)
        instances = {name: group.pop(context, arguments) for name, group in groups.items()}
        function(**instances, **arguments)

    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__signature__ = Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue] - inspect looks for it
    return command


def _find_group(hint: Any) -> _Group | None:
    """The settings of a parameter of this type; None if it is a single flag."""
    kind, notes = _split_hint(hint)
    is_partial = get_origin(kind) is ParsedFlags
    if is_partial:
        (kind,) = get_args(kind)
    kinds = next((note.kinds for note in notes if isinstance(note, FlagsOf)), (kind,))
    if not all(map(is_dataclass, kinds)):
        return None
    settings = {setting.field.name: setting for dataclass in kinds for setting in _list_settings(dataclass)}
    for note in notes:
        if isinstance(note, FlagSubset):
            settings = {name: settings[name] for name in note.names}
    return _Group(make=kind, settings=tuple(settings.values()), is_partial=is_partial)


def _list_settings(kind: Any) -> Iterator[_Setting]:
    """The settings of a class, then those that it inherits."""
    hints, annotations = get_type_hints(kind, include_extras=True), kind.__annotations__
    for field in sorted(fields(kind), key=lambda field: field.name not in annotations):
        hint = hints[field.name]
        if get_origin(hint) is Annotated:
            yield _Setting(field=field, kind=hint, flag=_find_flag(hint))


def _split_hint(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """The type itself and its annotations."""
    return (hint.__origin__, hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())


def _find_flag(hint: Any) -> Flag | None:
    _, notes = _split_hint(hint)
    return next((note for note in notes if isinstance(note, Flag)), None)


def _make_annotation(name: str, hint: Any, default: Any) -> Any:
    """The annotation for typer: a `Flag` becomes an option."""
    flag = _find_flag(hint)
    if flag is None:
        return hint
    kind = _split_hint(hint)[0] if flag.parse is None else str
    return Annotated[
        kind | None if default is None else kind,
        typer.Option(
            flag.spelling or f"--{(flag.name or name).replace('_', '-')}",
            help=flag.help,
            min=flag.minimum,
            max=flag.maximum,
            metavar=flag.metavar,
            show_default=flag.shown_default or True,
            callback=None if flag.check is None else _make_callback(flag.check),
        ),
    ]


def _make_callback(check: Callable[[Any], None]) -> Callable[[Any], Any]:
    """A typer callback that turns the check's ValueError into bad usage, and returns the value."""

    def checked(value: Any) -> Any:
        if value is not None:
            try:
                check(value)
            except ValueError as error:
                raise typer.BadParameter(str(error)) from error
        return value

    return checked


def _format_default(flag: Flag, field: Field[Any]) -> str:
    """A default as written on the command line."""
    if field.default is None:
        return flag.none_text or ""
    parts = field.default if isinstance(field.default, tuple) else (field.default,)
    return ",".join(f"{part:g}" if isinstance(part, float) else str(part) for part in parts)


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether a parameter was given on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
