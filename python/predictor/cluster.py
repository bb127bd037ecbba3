"""Jobs on the machines of a Ray cluster."""

import logging
import os
import platform
import re
import socket
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import Any, Final, final

from predictor.errors import ConfigurationError, MissingPackageError, QuantraError, UnavailableError, format_names
from predictor.jobs import JobOutcome, JobPool, JobRunner, LocalRunner, Prepare, ProcessRunner

LOCAL: Final = "local"
_CLIENT: Final = re.compile(r"ray://(?P<host>[^/:]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
_PATIENCE_S: Final = 10.0
_PAUSE_S: Final = 0.5
GB: Final = 1e9
_COMPARED: Final = ("quantra", "torch", "numpy", "ray")


@final
class RayRunner(JobRunner):
    """Runs jobs in actors of Ray, with one CPU each.

    Common material is sent to each node once, and read without a copy.

    Args:
        address: `local` starts Ray on this machine, `auto` finds the cluster that this machine belongs to, and
            `ray://HOST:10001` connects to one elsewhere.
        memory: Bytes that Ray reserves for a job; 0 for none.
        timeout: See `JobRunner`; the start of a process and its preparation are not counted.
        advice: See `JobRunner`.
        tell: Receives the address of Ray's dashboard.

    Raises:
        ConfigurationError: The address is another one.
    """

    def __init__(
        self,
        address: str,
        *,
        memory: int = 0,
        timeout: float | None = None,
        advice: str = "reserve more memory with --job-memory",
        tell: Callable[[str], None] = lambda _line: None,
    ) -> None:
        super().__init__(timeout=timeout, advice=advice)
        if address not in {LOCAL, "auto"} and not _CLIENT.fullmatch(address):
            raise ConfigurationError(
                f"{address} is not the address of a Ray cluster; use local, auto or ray://HOST:PORT"
            )
        self._address, self._memory, self._tell = address, memory, tell

    @contextmanager
    def _open(self, prepare: Prepare[Any, Any], count: int) -> Generator[JobPool]:
        """As `JobRunner._open`.

        Raises:
            MissingPackageError: The package ray is not installed.
            UnavailableError: There is no cluster at the address, its head is lost, or it has no room for the common
                material.
            ConfigurationError: A node has other versions of Python or of packages, or none is large enough for a job.
        """
        del count
        with _connect(self._address, self._tell) as ray:
            _check_room(ray, self._memory)
            try:
                material = ray.put(prepare)
            except (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError) as error:
                reason = " ".join(str(error).split())
                raise UnavailableError(
                    "Ray's object store has no room for the common material; start Ray with a larger one "
                    f"(object_store_memory), or free the disk that it spills to: {reason}"
                ) from error
            host, port = _find_head(ray, self._address)
            pool = _ActorPool(ray, material, self._memory, (host, port))
            try:
                yield pool
            except _HeadLostError as error:
                raise UnavailableError(
                    f"the head of the Ray cluster, {host}:{port}, does not answer any more; {self.progress.done} of "
                    f"{self.progress.jobs} jobs were done. Start a cluster and the same command again, with --resume "
                    "if it has that flag: what it has stored is not computed again"
                ) from error
            finally:
                pool.close()


def choose_runner(
    workers: int,
    cluster: str | None,
    *,
    timeout: float | None = None,
    memory: float | None = None,
    can_resume: bool = False,
    tell: Callable[[str], None],
) -> JobRunner:
    """The runner for these settings: one process, several, or a cluster.

    Args:
        workers: Processes of this machine.
        cluster: Address of a cluster; None for none.
        timeout: As for `JobRunner`.
        memory: GB that a cluster reserves for a job; by default what this process has used so far.
        can_resume: Whether `--resume` continues the command if a job lost its process too often.
        tell: As for `RayRunner`.

    Raises:
        ConfigurationError: Both processes and a cluster are given, or a value is invalid.
    """
    if workers < 1:
        raise ConfigurationError(f"workers is {workers}, but must be 1 or more")
    if cluster is not None:
        if workers != 1:
            raise ConfigurationError("give either workers or a cluster; a cluster runs a job on each of its CPUs")
        return RayRunner(
            cluster,
            memory=measure_peak_memory() if memory is None else int(memory * GB),
            timeout=timeout,
            advice=f"{'continue with --resume and ' if can_resume else ''}reserve more memory with --job-memory",
            tell=tell,
        )
    if workers == 1 and timeout is None:
        return LocalRunner()
    advice = "continue with --resume and fewer --workers" if can_resume else "use fewer --workers"
    return ProcessRunner(workers, timeout=timeout, advice=advice)


class _HeadLostError(Exception):
    """Nothing listens at the head's address any more."""


def _define_actor() -> type:
    """The class of a process on a node that runs one job at a time.

    It is local so that Ray sends its code, which imports Quantra only where the node has the same versions.
    """

    class JobActor:
        def prepare(self, expected: Mapping[str, str], material: Sequence[Any]) -> str:
            """Prepare the work of all jobs.

            Args:
                expected: Versions by package.
                material: The reference to the common material. In a sequence, Ray does not read it yet.

            Returns:
                Why this node cannot run jobs; empty if it can.
            """
            import platform
            from importlib.metadata import PackageNotFoundError, version

            import ray

            different: list[str] = []
            for package, expected_version in expected.items():
                try:
                    installed = platform.python_version() if package == "python" else version(package)
                except PackageNotFoundError:
                    different.append(f"no {package}")
                else:
                    different += (
                        [f"{package} {installed} instead of {expected_version}"]
                        if installed != expected_version
                        else []
                    )
            node = ray.util.get_node_ip_address()
            if different:
                return f"node {node} has {', '.join(different)}; install the same versions on all nodes"
            from predictor.errors import QuantraError
            from predictor.jobs import prepare_work

            try:
                self._work = prepare_work(ray.get(material[0]))
            except QuantraError as error:
                return f"node {node}: {error.message}; all nodes must see the same files"
            return ""

        def run(self, job: Any) -> object:
            from predictor.jobs import run_job

            return run_job(self._work, job)

    return JobActor


@final
class _ActorPool:
    """Actors of Ray, at most one per CPU.

    A job waits here until an actor is prepared, so an actor that finds no free CPU delays no job. Nothing is cancelled,
    since Ray 2.60 can end the process that cancels a task that has not begun.
    """

    def __init__(self, ray: Any, material: Any, memory: int, head: tuple[str, int]) -> None:
        self._ray, self._material, self._memory, self._head = ray, material, memory, head
        self._actor = ray.remote(num_cpus=1, memory=memory)(_define_actor())
        self._versions = {"python": platform.python_version(), **{package: version(package) for package in _COMPARED}}
        self._waiting_jobs: dict[int, Any] = {}
        """Jobs without an actor."""
        self._starting_actors: dict[Any, Any] = {}
        """Actors that are not prepared yet, each under the reference to its preparation."""
        self._idle_actors: list[Any] = []
        self._busy_actors: dict[Any, tuple[int, Any]] = {}
        """Number and actor of each running job, under the reference to its outcome."""

    @property
    def slots(self) -> int:
        _check_head(self._head)
        with _translate_lost_head():
            return max(1, sum(_count_places(node, self._memory) for node in _list_nodes(self._ray)))

    def start(self, number: int, job: Any) -> bool:
        self._waiting_jobs[number] = job
        with _translate_lost_head():
            if self._idle_actors:
                self._run_next(self._idle_actors.pop())
                return True
            if len(self._starting_actors) < len(self._waiting_jobs):
                actor = self._actor.remote()
                self._starting_actors[actor.prepare.remote(self._versions, [self._material])] = actor
        return False

    def wait(self, seconds: float | None) -> Iterator[tuple[int, JobOutcome | None]]:
        turn = _PATIENCE_S if seconds is None else min(seconds, _PATIENCE_S)
        with _translate_lost_head():
            references, _ = self._ray.wait([*self._busy_actors, *self._starting_actors], num_returns=1, timeout=turn)
        if not references:
            _check_head(self._head)
        for reference in references:
            with _translate_lost_head():
                outcome = _fetch_outcome(self._ray, reference)
            if reference in self._busy_actors:
                number, actor = self._busy_actors.pop(reference)
                yield number, outcome
            else:
                actor = self._starting_actors.pop(reference)
                if outcome.is_lost and self._waiting_jobs:
                    number, _ = self._take_waiting()
                    yield number, outcome
            if outcome.is_lost:
                self._end(actor)  # its node may only be unreachable
            elif self._waiting_jobs:
                with _translate_lost_head():
                    number = self._run_next(actor)
                yield number, None
            else:
                self._idle_actors.append(actor)

    def stop(self, number: int) -> None:
        reference, actor = next((key, actor) for key, (known, actor) in self._busy_actors.items() if known == number)
        del self._busy_actors[reference]
        self._end(actor)

    def close(self) -> None:
        busy = [actor for _, actor in self._busy_actors.values()]
        with suppress(_HeadLostError):  # its actors end with the head
            for actor in (*self._idle_actors, *busy, *self._starting_actors.values()):
                self._end(actor)

    def _end(self, actor: Any) -> None:
        with _translate_lost_head():
            self._ray.kill(actor)

    def _run_next(self, actor: Any) -> int:
        """Run the job that waits longest, and return its number."""
        number, job = self._take_waiting()
        self._busy_actors[actor.run.remote(job)] = number, actor
        return number

    def _take_waiting(self) -> tuple[int, Any]:
        number = next(iter(self._waiting_jobs))
        return number, self._waiting_jobs.pop(number)


@contextmanager
def _translate_lost_head() -> Generator[None]:
    """Recognise the errors of a connection through ray:// whose head is lost.

    Raises:
        _HeadLostError: The connection is lost.
    """
    from grpc import RpcError  # Ray has imported it

    try:
        yield
    except (ConnectionError, RpcError) as error:
        raise _HeadLostError from error


@contextmanager
def _connect(address: str, tell: Callable[[str], None]) -> Generator[Any]:
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
        connection = ray.init(address, include_dashboard=dashboard, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, TimeoutError, ValueError) as error:
        raise _make_cluster_error(address, error) from error
    except Exception as error:
        if type(error) is not Exception:  # Ray raises a bare one if a part of it takes longer than 30 seconds to start
            raise
        raise UnavailableError(f"Ray did not start: {error}; try again when this machine is less busy") from error
    if connection.dashboard_url:
        tell(f"Ray's dashboard: http://{connection.dashboard_url}")
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Refuse an address where nothing listens, which Ray would wait for."""
    if (match := _CLIENT.fullmatch(address)) is not None:
        try:
            socket.create_connection((match["host"].strip("[]"), int(match["port"])), _PATIENCE_S).close()
        except (OSError, OverflowError) as error:
            raise _make_cluster_error(address, error) from error


def _find_head(ray: Any, address: str) -> tuple[str, int]:
    """Host and port at which this process reaches the head."""
    if (match := _CLIENT.fullmatch(address)) is not None:
        return match["host"].strip("[]"), int(match["port"])
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    return host.strip("[]"), int(port)


def _check_head(head: tuple[str, int]) -> None:
    """Check that the head can be reached; otherwise Ray ends this process a minute later without a word.

    Raises:
        _HeadLostError: It cannot be reached for a while.
    """
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            socket.create_connection(head, _PATIENCE_S).close()
        except OSError as error:
            if time.monotonic() > end:
                raise _HeadLostError from error
            time.sleep(_PAUSE_S)
        else:
            return


def _make_cluster_error(address: str, error: Exception) -> UnavailableError:
    reason = " ".join(str(error).split())
    return UnavailableError(
        f"there is no Ray cluster at {address}: {reason}; start one with `ray start`, or use --cluster local"
    )


def measure_peak_memory() -> int:
    """The largest memory in bytes that this process has used so far; 0 on Windows, which does not count it."""
    if sys.platform == "win32":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _list_nodes(ray: Any) -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _count_places(node: Mapping[str, Any], memory: int) -> int:
    """Jobs of a memory in bytes that a node can run at the same time."""
    cpus, free = (node["Resources"].get(name, 0) for name in ("CPU", "memory"))
    return int(min(cpus, free // memory if memory else cpus))


def _check_room(ray: Any, memory: int) -> None:
    """Refuse jobs that no node can run, for which Ray would wait."""
    nodes = _list_nodes(ray)
    if any(_count_places(node, memory) for node in nodes):
        return
    if not any(node["Resources"].get("CPU", 0) >= 1 for node in nodes):
        raise ConfigurationError("the Ray cluster has no CPU for a job; add a node")
    offers = format_names(
        [f"{node['NodeManagerAddress']} {node['Resources'].get('memory', 0) / GB:.1f}" for node in nodes]
    )
    raise ConfigurationError(
        f"a job needs {memory / GB:.1f} GB of memory, but the nodes offer, in GB: {offers}; add a larger node, or set "
        "a smaller --job-memory"
    )


def _fetch_outcome(ray: Any, reference: Any) -> JobOutcome:
    """The outcome of an actor's method.

    Raises:
        ConfigurationError: Its node cannot run jobs.
    """
    try:
        outcome: JobOutcome | str = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        return JobOutcome(error=QuantraError(" ".join(str(error).split())), is_lost=True)
    if isinstance(outcome, JobOutcome):
        return outcome
    if outcome:
        raise ConfigurationError(outcome)
    return JobOutcome()
