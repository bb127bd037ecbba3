"""What to do after a command: commands to copy, as the last lines that a person is shown."""

import re
import shlex
from dataclasses import Field, asdict, fields
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_BEGINNING: Final = "Next: "
_SECRET: Final = re.compile(r"\w[\w+]*://[^/]*@.*")
"""An address with a user's name, and so perhaps a password."""


def given(*groups: "DataclassInstance") -> tuple[str, ...]:
    """The flags of these groups as they were given, to name them in another command; an address with a password is not.

    Args:
        groups: such as `BarsFlags`: each field is the flag of its name.
    """
    return tuple(
        word for group in groups for field in fields(group) for word in _words(field, asdict(group)[field.name])
    )


def _words(field: Field[Any], value: Any) -> tuple[str, ...]:
    """One flag with its value; nothing where it has its default."""
    flag = f"--{field.name.replace('_', '-')}"
    if value is None or value == field.default:
        return ()
    if value is True:
        return (flag,)
    values = value if isinstance(value, list) else [value]
    return tuple(word for one in values for word in (flag, _SECRET.sub("BARS", str(one))))


def quantra(*words: object) -> str:
    """A command of this program as it is typed: words that a shell would take apart are quoted."""
    return "quantra " + shlex.join(map(str, words))


def tell_next(*commands: str) -> None:
    """Show commands on standard output, one a line and none folded, so that each can be copied."""
    console = Console(highlight=False)
    for place, command in enumerate(commands):
        beginning = " " * len(_BEGINNING) if place else _BEGINNING
        # Plain, because a path may hold brackets.
        console.print(beginning + command, soft_wrap=True, markup=False)
