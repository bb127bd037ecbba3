"""Sends itself SIGINT twice, expecting KeyboardInterrupt, then SIGTERM twice, which ends it."""

import os
import signal
import sys

from trainers.loop.checkpoint.store import StopSignals


def print_now(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        with StopSignals() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            print_now(f"asked to stop by {signal.Signals(stop.requested).name}")
            os.kill(os.getpid(), signal.SIGINT)
            print_now("never said")
    except KeyboardInterrupt:
        print_now("interrupted at once")
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        print_now(f"asked to stop by {signal.Signals(stop.requested).name}")
        os.kill(os.getpid(), signal.SIGTERM)
        print_now("never said")
