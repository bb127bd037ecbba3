"""Jobs without much to import, so that other processes start soon."""

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from predictor.errors import ConfigurationError


def multiplier(factor: int) -> Callable[[int], int]:
    return partial(multiply, factor)


def multiply(factor: int, number: int) -> int:
    if number < 0:
        raise ConfigurationError(f"{number} is negative")
    return factor * number


def unprepared() -> Callable[[int], int]:
    raise ConfigurationError("there is no model")


def sleeper() -> Callable[[float], float]:
    return sleep


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def prepare_a_crash() -> Callable[[int], int]:
    return crash


def crash(_number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def killer(folder: Path) -> Callable[[int], int]:
    return partial(kill_the_node_once, folder)


def kill_the_node_once(folder: Path, number: int) -> int:
    """End the first node that runs this, and this process."""
    try:
        (folder / "killed").touch(exist_ok=False)
    except FileExistsError:
        return number
    for process in (os.getppid(), os.getpid()):
        os.kill(process, signal.SIGKILL)
    return -1
