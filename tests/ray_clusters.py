"""Ray clusters on this machine, for tests."""

import logging
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from ray.cluster_utils import Cluster

BARE = {"include_dashboard": False, "include_log_monitor": False}
"""A node without processes that the tests do not need."""
_ATTEMPTS = 3


@contextmanager
def start_cluster(*cpus: int) -> "Generator[Cluster]":
    """A cluster of nodes with these CPUs, the head first.

    Its processes can import these tests, as this process does, and run as fast.
    """
    from ray.cluster_utils import Cluster  # takes seconds, which other tests need not wait for

    head = {"num_cpus": cpus[0], "no_monitor": True, "dashboard_port": None}  # another Ray may have the usual port
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # other tests run beside these, and would leave Ray's workers no time
        made = Cluster()
        try:
            _add_node(made, {**head, **BARE})
            for count in cpus[1:]:
                _add_node(made, {"num_cpus": count, **BARE})
            made.wait_for_nodes()
            yield made
        finally:
            made.shutdown()


def _add_node(cluster: "Cluster", settings: dict[str, Any]) -> None:
    """Add a node; Ray gives up when a node has not started within 30 seconds, which happens on a busy machine."""
    for left in reversed(range(_ATTEMPTS)):
        try:
            cluster.add_node(**settings)
        except Exception as error:
            if left == 0 or "timed out during startup" not in str(error):
                raise
        else:
            return


@contextmanager
def connect(*cpus: int) -> "Generator[Cluster]":
    """A cluster to which this process is connected."""
    import ray

    with start_cluster(*cpus) as made:
        ray.init(made.address, log_to_driver=False, logging_level=logging.ERROR)
        try:
            yield made
        finally:
            ray.shutdown()
