"""Every flag of every command against a committed list, without the help texts.

After an intended change: `python tests/contract/test_flags.py`.
"""

import json
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

from trainers.cli.commands import app
from trainers.stock.__main__ import app as trainer
from trainers.vits.__main__ import app as speech

LIST = Path(__file__).with_name("flags.jsonl")


def flags() -> list[str]:
    """One JSON line per flag, by command and name."""
    programs = {"quantra": app, "python -m trainers.stock": trainer, "python -m trainers.vits": speech}
    found = [
        {"command": command, **facts}
        for name, program in programs.items()
        for command, facts in facts_of(typer.main.get_command(program), name)
    ]
    found.sort(key=lambda facts: (facts["command"], facts["name"]))
    return [json.dumps(facts, ensure_ascii=False) for facts in found]


def facts_of(command: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Flags of the command and its subcommands, loaded as the program loads them."""
    context = typer.Context(command, info_name=name)
    for parameter in command.params:
        yield name, facts_about(parameter, context)
    for below in getattr(command, "commands", ()):
        _, found, _ = command.resolve_command(context, [below])
        yield from facts_of(found, f"{name} {below}")


def facts_about(parameter: Any, context: typer.Context) -> dict[str, Any]:
    shown = parameter.get_help_record(context)
    told = "" if shown is None else shown[1].removeprefix(parameter.help or "").strip()
    return {
        "name": parameter.name,
        "spellings": [*parameter.opts, *parameter.secondary_opts],
        "type": type_name(parameter.type_descriptor.annotation),
        "range": [parameter.min, parameter.max],
        "default": value_name(parameter.default),
        "shown": told,
        "required": parameter.required,
        "multiple": parameter.multiple,
        "values": parameter.nargs,
        "metavar": parameter.metavar,
        "variable": parameter.envvar,
        "hidden": parameter.hidden,
    }


def type_name(annotation: Any) -> str:
    """The type, with its choices if it has any."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "|".join(str(member.value) for member in annotation)
    if get_origin(annotation) is Literal:
        return "|".join(map(str, get_args(annotation)))
    if get_origin(annotation) is not None:
        return f"{type_name(get_origin(annotation))} of {' '.join(map(type_name, get_args(annotation)))}"
    return str(getattr(annotation, "__name__", annotation))


def value_name(value: Any) -> str | int | float | None:
    """Plain values unchanged, others as text."""
    plain = type(value) in (str, int, float, bool, type(None))
    return value if plain else f"{'Path' if isinstance(value, Path) else type(value).__name__} {value}"


def test_no_flag_changed_that_was_not_meant_to_change() -> None:
    committed = LIST.read_text(encoding="utf-8").splitlines()
    found = flags()
    assert [line for line in committed if line not in found] == []
    assert [line for line in found if line not in committed] == []


if __name__ == "__main__":
    LIST.write_text("\n".join(flags()) + "\n", encoding="utf-8")
