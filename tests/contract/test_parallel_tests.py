"""All tests of a file run in one pytest-xdist process."""

import os

import pytest


def test_the_tests_of_a_file_are_run_by_one_process(request: pytest.FixtureRequest) -> None:
    """Without the groups pytest-xdist makes every fixture once per process, silently."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("one process runs all tests")
    assert request.node.nodeid.endswith("@tests/contract/test_parallel_tests.py")
