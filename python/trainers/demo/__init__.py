"""The demo: training, serving, forecasts from Python and C#, and a report, on real bars from a package."""

from trainers.demo.steps import DemoResult, DemoSettings, run_demo

__all__ = ["DemoResult", "DemoSettings", "run_demo"]
