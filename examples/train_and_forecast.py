"""Train on a file of daily bars and forecast: python examples/train_and_forecast.py BARS.csv.

`quantra demo` creates a file that you can use, demo/bars.csv.
"""

import sys

from quantra import BarPanel, StockTrainer


def main() -> None:
    """Train on a file of bars, forecast from its end, and print the skill of the model."""
    bars = BarPanel.read(sys.argv[1])
    trainer = StockTrainer(model="gru", horizons=[1, 5], epochs=5, quiet=True)
    with trainer.fit(bars) as forecaster:
        forecast = forecaster.predict(bars)
    for row in forecast.table()[:2]:
        print(row)
    print(trainer.evaluate(bars, seeds=1))
    print(trainer)


if __name__ == "__main__":
    main()
