"""Settings for all tests: one torch thread, Ctrl+C as in a terminal, and checked log lines.

One thread makes results independent of the machine. Ctrl+C works also where the parent process ignores it, as a
shell does for background jobs.
"""

import gc
import importlib.util
import os
import signal
from collections.abc import Generator, Iterator
from typing import Final

import pytest
from ledger_databases import ledger_database, postgresql_database, postgresql_server, unreliable_database
from watched_logs import SUITE

__all__ = ["ledger_database", "postgresql_database", "postgresql_server", "unreliable_database"]

if importlib.util.find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TOGETHER = {"test_demo.py": "demo", "test_readme.py": "demo"}
"""Files whose tests share slow fixtures: one process runs both."""

LONGEST = (
    "test_dotnet.py",
    "test_demo.py",
    "test_readme.py",
    "test_dotnet_hosting.py",
    "test_packages.py",
    "test_dotnet_terminal.py",
    "test_serving_page.py",
    "test_stock_command.py",
)
"""Files that take about a minute each: they start first, so that all processes end at about the same time."""


def pytest_xdist_auto_num_workers() -> int | None:
    """1.5 processes per core for `-n auto`: many tests wait for servers to start or stop."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + cores // 2


MAX_ID: Final = 60
"""Characters of a value in the id of its test."""


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten long values in ids, which pytest-xdist sends and child processes get in their environment."""
    if isinstance(val, str | bytes) and len(val) > MAX_ID:
        return f"{val[:MAX_ID]!a} of {len(val)}"
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Pause garbage collection, which takes a fifth of the time and finds nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests of a file in one process, since they share fixtures."""
    for item in items:
        group = TOGETHER.get(item.path.name, item.nodeid.partition("::")[0])
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(scope="session", autouse=True)
def no_log_holds_what_it_may_not() -> Iterator[None]:
    """Fail the last test's teardown if any log line held a token, a value or a path."""
    with SUITE.listening():
        yield
    assert not SUITE.breaches, f"lines of logs hold what they may not:\n{SUITE.told()}"
