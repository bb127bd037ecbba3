"""What goes to stderr beside a command's result: one line a message."""

from pathlib import Path

from rich.console import Console
from rich.text import Text


def say(message: str, style: str = "red") -> None:
    """One coloured line. What others wrote is shown as text: neither markup nor escape codes work in it."""
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(message.split()))
    Console(stderr=True, highlight=False).print(Text(line, style=style), soft_wrap=True)


def warned_of_aliases(folder: Path, device: str = "cpu") -> list[str]:
    """What is wrong with the aliases of the model in this folder, said already; a warning changes no exit code."""
    from predictor.inference import choose_device  # brings torch, which --help need not wait for
    from predictor.registry import Runtime, alias_problems

    problems = [problem.message for problem in alias_problems(folder, Runtime(choose_device(device), max_rows=256))]
    for problem in problems:
        say(problem, "yellow")
    return problems
