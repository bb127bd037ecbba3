"""Jobs on the machines of a Ray cluster."""

import logging
import os
import platform
import re
import socket
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final, TypeVar, final

from predictor.errors import ConfigurationError, MissingPackageError, QuantraError, UnavailableError
from predictor.jobs import Work, prepare_work

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")

LOCAL: Final = "local"
_CLIENT: Final = re.compile(r"ray://(?P<host>[^/:]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
_PATIENCE_S: Final = 10.0
_REPEATS: Final = 3
"""How often a job runs again whose process or node was lost."""
_COMPARED: Final = ("quantra", "torch", "numpy", "ray")


@final
class OnRay:
    """Runs jobs as tasks of Ray, with one CPU each. A task whose node is lost runs again on another one.

    Common material is sent to each node once, and read without a copy.

    Args:
        address: `local` starts Ray on this machine, `auto` finds the cluster that this machine belongs to, and
            `ray://HOST:10001` connects to one elsewhere.

    Raises:
        ConfigurationError: The address is another one.
    """

    def __init__(self, address: str) -> None:
        if address not in {LOCAL, "auto"} and not _CLIENT.fullmatch(address):
            raise ConfigurationError(
                f"{address} is not the address of a Ray cluster; use local, auto or ray://HOST:PORT"
            )
        self._address = address

    def run(self, prepare: Callable[[], Work[JobT, ResultT]], jobs: Sequence[JobT]) -> Iterator[tuple[JobT, ResultT]]:
        """As `JobRunner.run`.

        Raises:
            MissingPackageError: The package ray is not installed.
            UnavailableError: There is no cluster at the address.
            ConfigurationError: A node has other versions of Python or of packages, or the cluster has no CPU.
        """
        if not jobs:
            return
        with _connected(self._address) as ray:
            _check_nodes(ray)
            material = [ray.put(prepare)]  # in a list, it is not read again for each job
            task = ray.remote(num_cpus=1, max_retries=_REPEATS)(_run_job)
            waiting = {task.remote(material, job): job for job in jobs}
            try:
                while waiting:
                    (done,), _ = ray.wait(list(waiting), num_returns=1)
                    yield waiting.pop(done), _result_of(ray, done)
            finally:
                for reference in waiting:
                    ray.cancel(reference, force=True)


@contextmanager
def _connected(address: str) -> Generator[Any]:
    """The package, connected until the block ends. An existing connection is used and kept."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingPackageError.of("ray", "cluster", "--cluster") from error
    if ray.is_initialized():
        yield ray
        return
    _check_reachable(address)
    dashboard = False if address == LOCAL else None  # None leaves that of a running cluster alone
    try:
        ray.init(address, include_dashboard=dashboard, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, TimeoutError, ValueError) as error:
        raise _no_cluster(address, error) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Refuse an address where nothing listens, which Ray would wait for."""
    if (found := _CLIENT.fullmatch(address)) is not None:
        try:
            socket.create_connection((found["host"].strip("[]"), int(found["port"])), _PATIENCE_S).close()
        except (OSError, OverflowError) as error:
            raise _no_cluster(address, error) from error


def _no_cluster(address: str, error: Exception) -> UnavailableError:
    reason = " ".join(str(error).split())
    return UnavailableError(
        f"there is no Ray cluster at {address}: {reason}; start one with `ray start`, or use --cluster local"
    )


def _check_nodes(ray: Any) -> None:
    """Compare each node's versions with this process's.

    Raises:
        ConfigurationError: One differs, or no node has a CPU.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    if ray.cluster_resources().get("CPU", 0) < 1:
        raise ConfigurationError("the Ray cluster has no CPU for a job; add a node")
    task = ray.remote(num_cpus=0)(_versions)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    asked = [
        task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()
        for node in nodes
    ]
    here = _versions()
    for node, reference in zip(nodes, asked, strict=True):
        name = node["NodeManagerAddress"]
        try:
            there: Mapping[str, str] = ray.get(reference)
        except ray.exceptions.RayError as error:
            reason = " ".join(str(error).split())
            raise ConfigurationError(
                f"node {name} cannot run Quantra: {reason}; install quantra {here['quantra']} on it"
            ) from error
        differing = [package for package in here if there[package] != here[package]]
        different = [f"{package} {there[package]} instead of {here[package]}" for package in differing]
        if different:
            raise ConfigurationError(f"node {name} has {', '.join(different)}; install the same versions on all nodes")


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{package: version(package) for package in _COMPARED}}


def _result_of(ray: Any, reference: Any) -> Any:
    """The result of a finished task, or its own error."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise QuantraError(
            f"a job was lost {_REPEATS + 1} times, perhaps because memory ran out: {' '.join(str(error).split())}"
        ) from error


def _run_job(material: list[Any], job: Any) -> Any:
    return _prepared(material[0])(job)


@lru_cache(maxsize=1)
def _prepared(material: Any) -> Work[Any, Any]:
    """The work, prepared once in this process."""
    import ray

    return prepare_work(ray.get(material))
