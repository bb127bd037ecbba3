"""From a table of daily bars to a forecast: python examples/train_and_forecast.py BARS.csv.

Any file of bars that Quantra reads will do; `quantra demo` leaves one, demo/bars.csv.
"""

import sys

from predictor import BarPanel
from trainers import StockTrainer


def main() -> None:
    """Train on a file of bars, forecast what comes after it, and tell how far the forecast can be trusted."""
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
