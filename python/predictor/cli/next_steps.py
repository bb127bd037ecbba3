"""What to do after a command: commands to copy, as the last lines that a person is shown."""

import shlex
from typing import Final

from rich.console import Console

_BEGINNING: Final = "Next: "


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
