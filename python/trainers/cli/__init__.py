"""`quantra`: the predictor's commands and the trainers' in one program. Needs the extra `cli`."""

from predictor.cli import run
from trainers.cli.commands import app

__all__ = ["main"]


def main() -> None:
    """Run the program."""
    run(app)
