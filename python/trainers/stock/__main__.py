"""`python -m trainers.stock …`: the stock trainer as a script of its own."""

from predictor.interruption import loading

with loading():
    from predictor.cli import run  # first: where typer is missing, it says what to install

    # isort: split
    import typer

    from trainers.stock.command import stock

app = typer.Typer(add_completion=False)
app.command(
    epilog="Example: python -m trainers.stock --bars bars.csv --model lstm --calendar XNYS --out models/demo/1"
)(stock)

if __name__ == "__main__":
    run(app, name="python -m trainers.stock")
