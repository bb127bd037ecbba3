"""One thread for torch in every test, where torch is installed: results and times then do not depend on the machine.

And every line of a log that the suite makes is looked at.
"""

import importlib.util
from collections.abc import Iterator

import pytest
from watched_logs import SUITE

if importlib.util.find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def no_log_holds_what_it_may_not() -> Iterator[None]:
    """The last test's teardown fails if any line of the suite held a token, a value or a path."""
    with SUITE.listening():
        yield
    assert not SUITE.breaches, f"lines of logs hold what they may not:\n{SUITE.told()}"
