"""The demo: everything once, for real, on bars that come with a package."""

from trainers.demo.walk import DemoResult, Settings, walk

__all__ = ["DemoResult", "Settings", "walk"]
