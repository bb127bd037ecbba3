"""How a command announces its stages, its warnings, and what can be done next."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from predictor.cli.next_steps import given, quantra, tell_next
from predictor.cli.options import BarsFlags, CovariateFlags


def announcer(*, as_json: bool) -> Callable[[str], None]:
    """Tells a person or a program on standard output, among the other lines of a long run."""

    def announce(stage: str) -> None:
        if as_json:
            sys.stdout.write(json.dumps({"kind": "stage", "stage": stage}) + "\n")
            sys.stdout.flush()
        else:
            Console().print(f"{stage} …", style="dim", markup=False, highlight=False)

    return announce


def warner(*, as_json: bool) -> Callable[[str], None]:
    """Warns where `announcer` announces."""

    def warn(line: str) -> None:
        if as_json:
            sys.stdout.write(json.dumps({"kind": "warning", "warning": line}) + "\n")
            sys.stdout.flush()
        else:
            _print_warning(Console(), line)

    return warn


def warn_beside(line: str) -> None:
    """Warns where `announce_beside` announces."""
    _print_warning(Console(stderr=True), line)


def tell_use_of(out: Path, bars: BarsFlags, files: CovariateFlags) -> None:
    """Tells a person what to do with a new artifact, on the bars that it was made of."""
    tell_next(
        quantra("inspect", out),
        quantra("evaluate", out, *given(bars, files)),
        quantra("predict", "--artifact", out, *given(bars, files)),
    )


def _print_warning(console: Console, line: str) -> None:
    console.print(f"warning: {line}", style="yellow", markup=False, highlight=False)


def announce_beside(stage: str) -> None:
    """Tells a person on standard error, where standard output is one answer that a program may read."""
    Console(stderr=True, highlight=False).print(f"{stage} …", style="dim", markup=False)
