"""Runs a function on several ranks: real processes with torchrun's environment.

They are forked from a server that has imported torch once, which makes starting them fast.
"""

import gc
import importlib.util
import inspect
import multiprocessing as mp
import os
import pickle
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Generic, TypeVar, TypeVarTuple

import torch
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]  documented all the same

Given = TypeVarTuple("Given")
Result = TypeVar("Result")

LAZY = ["torch._dynamo", "torch.fx.experimental.symbolic_shapes"]  # torch imports them in the first backward or step
PRELOADED = ["torch", *LAZY, "numpy", "pytest", "hypothesis", "trainers.loop"]
HOST = "127.0.0.1"
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)  # no slots: with them, Ended[Result](…) fails in Python 3.11
class Ended(Generic[Result]):
    """How a rank ended.

    Attributes:
        value: What the function returned; None if it did not return.
        error: Class and message of what it raised instead, such as `ValueError: no`; empty if it raised nothing.
        exit_code: Of the process: 0, 1 after an error, -N after signal N.
    """

    value: Result | None
    error: str
    exit_code: int


def on_ranks(job: Callable[[*Given], Result], *given: *Given) -> list[Ended[Result]]:
    """Run a function on two ranks and wait for both, however they end.

    Args:
        job: Defined at the top of its module, with a name; the processes load that file afresh.
        given: Its arguments. They and the result are pickled.
    """
    assert job.__module__ != "__main__", "a process that loads the main program again would start ranks without end"
    context = _context()
    store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)  # torchrun runs a similar one
    with TemporaryDirectory() as folder:
        results = [Path(folder) / str(rank) for rank in range(2)]
        work = (Path(inspect.getfile(job)), job.__module__, job.__name__, pickle.dumps(given))
        processes = [
            context.Process(target=_work, args=(*work, _environment(rank, store.port), result))
            for rank, result in enumerate(results)
        ]
        for process in processes:
            process.start()
        _wait(processes)
        return [_ended(process, result) for process, result in zip(processes, results, strict=True)]


def results_on_ranks(job: Callable[[*Given], Result], *given: *Given) -> list[Result]:
    """Run a function on two ranks that must both return; what they return, in the order of ranks."""
    values: list[Result] = []
    for rank, ended in enumerate(on_ranks(job, *given)):
        assert not ended.exit_code, f"rank {rank} ended with {ended.exit_code}: {ended.error}"
        values.append(ended.value)  # pyright: ignore[reportArgumentType]  it returned, so this is a result
    return values


def meeting_store() -> TCPStore:
    """For functions on ranks: keys that one rank sets and another waits for, apart from the group."""
    return TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)


def _context() -> ForkServerContext | SpawnContext:
    if sys.platform == "win32":
        return mp.get_context("spawn")
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _environment(rank: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": HOST,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def _work(file: Path, module_name: str, name: str, given: bytes, environment: Mapping[str, str], result: Path) -> None:
    """Run a rank."""
    os.environ.update(environment)
    torch.set_num_threads(1)
    gc.freeze()  # later collections only visit the job's objects
    job: Callable[..., object] = getattr(_loaded(file, module_name), name)
    try:
        value = job(*pickle.loads(given))  # noqa: S301  what the test itself has written
    except Exception as error:
        _write(result, (None, f"{type(error).__name__}: {error}"))
        raise
    _write(result, (value, ""))


def _loaded(file: Path, name: str) -> object:
    """Load the module under its name in the tests, so that its classes can be pickled both ways."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    package = name.partition(".")[0]  # pickle needs it too; pytest invents one where it is missing
    sys.modules.setdefault(package, ModuleType(package))
    return module


def _write(file: Path, result: tuple[object, str]) -> None:
    file.write_bytes(pickle.dumps(result))


def _wait(processes: Sequence[BaseProcess]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
    alive = [rank for rank, process in enumerate(processes) if process.is_alive()]
    for process in processes:
        process.kill()
        process.join()
    assert not alive, f"ranks {alive} did not end within {PATIENCE_SECONDS:g} seconds"


def _ended(process: BaseProcess, result: Path) -> Ended[Any]:
    exit_code = process.exitcode
    assert exit_code is not None
    value, error = pickle.loads(result.read_bytes()) if result.exists() else (None, "")  # noqa: S301  as above
    return Ended(value=value, error=error, exit_code=exit_code)
