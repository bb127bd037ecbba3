"""`quantra`: the predictor's commands and the trainers' in one program. Needs the extra `cli`."""

from predictor.interruption import exit_on_interrupt

__all__ = ["main"]


def main() -> None:
    """Run the program."""
    with exit_on_interrupt():
        from predictor.cli import run  # first: without typer, it says what to install
        from trainers.cli.commands import app
    run(app)
