"""`python -m trainers.dit …`: the image trainer as a standalone program."""

from predictor.interruption import exit_on_interrupt

with exit_on_interrupt():
    from predictor.cli import run  # first: it reports a missing typer

    # isort: split
    import typer

    from trainers.dit.command import cache, evaluate, grpo, sample, train

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Train a model on images, and draw with it.")
app.command(epilog="Example: python -m trainers.dit cache images --model base --out cached")(cache)
app.command(epilog="Example: python -m trainers.dit train cached --model base --out drawings/mine")(train)
app.command(
    epilog="Example: python -m trainers.dit grpo images --model drawings/mine --held-out held --out drawings/tuned"
)(grpo)
app.command(
    epilog='Example: python -m trainers.dit sample drawings/mine --prompt "a handwritten digit seven" --out seven.png'
)(sample)
app.command(epilog="Example: python -m trainers.dit evaluate drawings/mine --images images --held-out held")(evaluate)

if __name__ == "__main__":
    run(app, name="python -m trainers.dit")
