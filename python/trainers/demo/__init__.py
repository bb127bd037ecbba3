"""The demo: everything once, for real, on bars that come with a package."""

from trainers.demo.walk import Settings, Walked, walk

__all__ = ["Settings", "Walked", "walk"]
