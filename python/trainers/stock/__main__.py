"""The stock trainer as a script: `python -m trainers.stock …`."""

from predictor.interruption import exit_on_interrupt

with exit_on_interrupt():
    from predictor.cli import run  # first: without typer, it says what to install

    # isort: split
    import typer

    from predictor.cli.program import CommandOfFiles
    from trainers.stock.command import stock

app = typer.Typer(add_completion=False)
app.command(
    cls=CommandOfFiles, epilog="Example: python -m trainers.stock --bars bars.csv --model lstm --out models/demo/1"
)(stock)

if __name__ == "__main__":
    run(app, name="python -m trainers.stock")
