"""`python -m trainers.vits …`: the speech trainer as a standalone program."""

from predictor.interruption import exit_on_interrupt

with exit_on_interrupt():
    from predictor.cli import run  # first: it reports a missing typer

    # isort: split
    import typer

    from trainers.vits.command import evaluate, feedback, prepare, synth, train

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Train a voice and synthesise speech.")
app.command(epilog="Example: python -m trainers.vits prepare recordings --out corpus")(prepare)
app.command(epilog="Example: python -m trainers.vits train corpus --out voices/mine")(train)
app.command(epilog='Example: python -m trainers.vits synth voices/mine --text "ez diçim malê" --out a.wav')(synth)
app.command(epilog="Example: python -m trainers.vits evaluate voices/mine --corpus corpus")(evaluate)
app.command(epilog="Example: python -m trainers.vits feedback voices/mine --corpus corpus --manifest feedback.jsonl")(
    feedback
)

if __name__ == "__main__":
    run(app, name="python -m trainers.vits")
