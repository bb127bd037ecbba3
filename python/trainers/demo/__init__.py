"""The demo: training, serving, forecasts from Python and C#, and a report, on real bars from a package."""

from trainers.demo.steps import DemoResult, DemoSettings, walk

__all__ = ["DemoResult", "DemoSettings", "walk"]
