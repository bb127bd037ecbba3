"""Draw the picture in the README: python examples/draw_fan.py docs/fan.png.

Run `quantra demo` first. Headless Chromium, which must be on the PATH, renders the chart as PNG.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from predictor.report import draw_forecast
from quantra import BarPanel, Forecaster

WIDTH, HEIGHT = 1000, 480


def main() -> None:
    """Forecast AAPL from the demo's bars and save the chart."""
    picture = Path(sys.argv[1]).absolute()
    bars = BarPanel.read("demo/bars.csv").select(["AAPL"])
    with Forecaster.load("demo/models/demo/1") as forecaster:
        past = [forecaster.predict(bars.until(int(bars.sessions[-1 - ago]))) for ago in (60, 40, 20)]
        figure = draw_forecast(bars, forecaster.predict(bars), "AAPL", past)
    figure.update_layout(width=WIDTH, height=HEIGHT)
    with TemporaryDirectory() as folder:
        page = Path(folder, "fan.html")
        figure.write_html(page, include_plotlyjs=True, config={"displayModeBar": False})
        page.write_text(page.read_text(encoding="utf-8").replace("<body>", '<body style="margin: 0">'), "utf-8")
        subprocess.run(  # noqa: S603 - a fixed command
            [  # noqa: S607 - found in PATH
                "chromium",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                f"--user-data-dir={folder}/profile",
                f"--window-size={WIDTH},{HEIGHT}",
                f"--screenshot={picture}",
                "--virtual-time-budget=5000",
                page.as_uri(),
            ],
            check=True,
            capture_output=True,
        )
    print(picture)


if __name__ == "__main__":
    main()
