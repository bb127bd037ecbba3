"""`python -m predictor.server`: the server, with the core dependencies only."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from predictor.errors import ConfigurationError
from predictor.flags import Flag
from predictor.server import ServeFlags, logs, serve


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and serve; the exit status is 0, 1 (could not start) or 2 (bad usage)."""
    parser = _create_parser()
    flags = ServeFlags(**vars(parser.parse_args(arguments)))
    logs.set_up(flags.log)
    try:
        settings = flags.settings()
    except ConfigurationError as error:
        parser.error(error.message)
    return serve(settings, flags.log)


def _create_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m predictor.server",
        description="Serve forecasting models over gRPC.",
        epilog="example: python -m predictor.server --models models --listen 127.0.0.1:0",
    )
    hints = get_type_hints(ServeFlags, include_extras=True)
    for field in fields(ServeFlags):
        kind, flag = get_args(hints[field.name])
        _add_flag(parser, field, kind, flag)
    return parser


def _add_flag(parser: argparse.ArgumentParser, field: "Field[Any]", kind: Any, flag: Flag) -> None:
    """Add the flag of a field, as typer would."""
    spelling = flag.spelling or f"--{field.name.replace('_', '-')}"
    if kind is bool:
        parser.add_argument(spelling, dest=field.name, action="store_true", help=flag.help)
        return
    is_required = field.default is MISSING
    help_text = flag.help if is_required or field.default is None else f"{flag.help} [%(default)s]"
    choices = get_args(kind) if get_origin(kind) is Literal else None
    parser.add_argument(
        spelling,
        dest=field.name,
        type=str if choices else _create_reader(kind, flag.minimum),
        choices=choices,
        default=None if is_required else field.default,
        required=is_required,
        metavar=flag.metavar,
        help=help_text,
    )


def _create_reader(kind: Any, minimum: float | None) -> Callable[[str], Any]:
    """Create a parser for values of a type or of the type in `T | None`."""
    make: Callable[[str], Any] = get_args(kind)[0] if isinstance(kind, UnionType) else kind

    def read(text: str) -> Any:
        value = make(text)
        if minimum is not None and value < minimum:
            raise argparse.ArgumentTypeError(f"{text} is below {minimum:g}")
        return value

    read.__name__ = make.__name__  # argparse uses the name in errors
    return read


if __name__ == "__main__":
    sys.exit(main())
