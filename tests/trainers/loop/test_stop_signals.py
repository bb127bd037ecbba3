"""Signals that stop a training run."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from trainers.loop.checkpoint.store import StopSignals

PROCESS = Path(__file__).with_name("stopping_process.py")
BOTH = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture(autouse=True)
def caught() -> Iterator[list[int]]:
    """Signals that reached the previous handlers, which are restored at the end."""
    found: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        found.append(number)

    before = {number: signal.signal(number, note) for number in BOTH}
    yield found
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", BOTH)
def test_the_first_signal_is_noted_and_not_acted_on(number: int, caught: list[int]) -> None:
    with StopSignals() as stop:
        assert (stop.is_installed, stop.requested) == (True, 0)
        os.kill(os.getpid(), number)
        assert (stop.requested, caught) == (number, [])


@pytest.mark.parametrize("number", BOTH)
def test_the_second_of_a_kind_goes_to_the_handler_from_before(number: int, caught: list[int]) -> None:
    with StopSignals() as stop:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        assert (stop.requested, caught) == (number, [number])


def test_signals_of_two_kinds_are_both_noted_and_the_first_is_reported(caught: list[int]) -> None:
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert (stop.requested, caught) == (signal.SIGINT, [])


def test_handlers_are_put_back_after_an_error(caught: list[int]) -> None:
    with pytest.raises(ZeroDivisionError), StopSignals():
        raise ZeroDivisionError
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    assert caught == BOTH


def test_an_unhandled_signal_goes_to_the_previous_handler_at_the_end(caught: list[int]) -> None:
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert caught == []
    assert not stop.is_installed
    assert caught == [signal.SIGTERM]


def test_a_signal_that_ended_the_training_is_not_passed_on(caught: list[int]) -> None:
    def stop_in_a_training() -> None:
        with StopSignals():
            os.kill(os.getpid(), signal.SIGTERM)
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        stop_in_a_training()
    assert caught == []


def test_another_thread_installs_nothing() -> None:
    before = [signal.getsignal(number) for number in BOTH]
    seen: list[tuple[bool, bool]] = []

    def enter() -> None:
        with StopSignals() as stop:
            seen.append((stop.is_installed, [signal.getsignal(number) for number in BOTH] == before))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [(False, True)]


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert (stop.is_installed, stop.requested) == (True, 0)
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends processes instead of sending them SIGTERM")
def test_a_process_that_is_asked_twice_ends_at_once() -> None:
    ended = subprocess.run([sys.executable, PROCESS], check=False, capture_output=True, text=True)
    assert ended.stdout.splitlines() == [
        "asked to stop by SIGINT",
        "interrupted at once",
        "asked to stop by SIGTERM",
    ]
    assert ended.returncode == -signal.SIGTERM


def test_an_echo_of_a_signal_is_not_a_second_one(caught: list[int]) -> None:
    now = [0.0]
    with StopSignals(echo_seconds=2.0, clock=lambda: now[0]) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        now[0] = 1.9
        os.kill(os.getpid(), signal.SIGINT)
        assert (stop.requested, caught) == (signal.SIGINT, [])
        now[0] = 2.0
        os.kill(os.getpid(), signal.SIGINT)
    assert caught == [signal.SIGINT]
