"""How a command says which stage begins."""

import json
import sys
from collections.abc import Callable

from rich.console import Console


def announcer(*, as_json: bool) -> Callable[[str], None]:
    """Tells a person or a program on standard output, among the other lines of a long run."""

    def announce(stage: str) -> None:
        if as_json:
            sys.stdout.write(json.dumps({"kind": "stage", "stage": stage}) + "\n")
            sys.stdout.flush()
        else:
            Console().print(f"{stage} …", style="dim", markup=False, highlight=False)

    return announce


def announce_beside(stage: str) -> None:
    """Tells a person on standard error, where standard output is one answer that a program may read."""
    Console(stderr=True, highlight=False).print(f"{stage} …", style="dim", markup=False)
