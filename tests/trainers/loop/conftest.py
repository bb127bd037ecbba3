"""Settings for the tests of the loop."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def collects_only_what_the_test_created(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hide older objects from the garbage collector.

    The loop collects all garbage when memory runs out, and to search the objects of all libraries takes half a second.
    Hypothesis needs to see its own objects.
    """
    if request.node.get_closest_marker("hypothesis"):
        yield
        return
    gc.freeze()
    yield
    gc.unfreeze()
