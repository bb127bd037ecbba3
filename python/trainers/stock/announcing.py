"""How a command announces its stages and its warnings: with rich where that is installed, plainly where not."""

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec

from trainers.progress import is_cell


def announcer(*, as_json: bool) -> Callable[[str], None]:
    """Tells a person or a program on standard output, among the other lines of a long run."""

    def announce(stage: str) -> None:
        if as_json:
            sys.stdout.write(json.dumps({"kind": "stage", "stage": stage}) + "\n")
            sys.stdout.flush()
        else:
            _print(f"{stage} …", "dim")

    return announce


def tell(line: str) -> None:
    """Tells a person what came out, on standard output."""
    _print(line, "")


def warner(*, as_json: bool) -> Callable[[str], None]:
    """Warns where `announcer` announces."""

    def warn(line: str) -> None:
        if as_json:
            sys.stdout.write(json.dumps({"kind": "warning", "warning": line}) + "\n")
            sys.stdout.flush()
        else:
            _print(f"warning: {line}", "yellow")

    return warn


def warn_beside(line: str) -> None:
    """Warns where `announce_beside` announces."""
    _print(f"warning: {line}", "yellow", beside=True)


def announce_beside(stage: str) -> None:
    """Tells a person on standard error, where standard output is one answer that a program may read."""
    _print(f"{stage} …", "dim", beside=True)


def _print(line: str, style: str, *, beside: bool = False) -> None:
    stream = sys.stderr if beside else sys.stdout
    if find_spec("rich") is None:
        stream.write(line + "\n")
        stream.flush()
        return
    from rich.console import Console

    # In a notebook, rich would make each line a piece of HTML, cut off at the right.
    console = Console(file=stream, force_jupyter=False)
    console.print(line, style=style, markup=False, highlight=False, soft_wrap=is_cell(stream))
