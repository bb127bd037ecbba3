"""The demo: everything once, for real, on bars that come with a package."""

from trainers.demo.steps import DemoResult, DemoSettings, walk

__all__ = ["DemoResult", "DemoSettings", "walk"]
