"""Signals that ask a training to stop."""

import signal
from collections.abc import Callable
from time import monotonic
from types import FrameType
from typing import Self, TypeAlias, final

Handler: TypeAlias = Callable[[int, FrameType | None], object] | int
STOPPING = (signal.SIGTERM, signal.SIGINT)


@final
class StopSignals:
    """While entered, notes the first SIGTERM or SIGINT instead of acting on it; the second of a kind acts at once.

    A signal that is ignored or that the host of an embedded interpreter handles itself is left alone, and so are all
    of them outside the main thread, where Python cannot handle any.

    Args:
        echo_seconds: The same signal within this many seconds is the same request: `torchrun` passes on to its
            processes what the terminal has sent to them already.
        clock: The time in seconds, which never goes back.

    Attributes:
        requested: The number of the first signal; 0 while there was none.
        installed: Whether any signal is being noted.
    """

    def __init__(self, *, echo_seconds: float = 0.0, clock: Callable[[], float] = monotonic) -> None:
        self._echo_seconds = echo_seconds
        self._clock = clock
        self.requested = 0
        self.installed = False
        self._passed_on = False
        self._previous: dict[int, Handler] = {}
        self._noted: dict[int, float] = {}

    def __enter__(self) -> Self:
        """Begin to note signals."""
        for number in STOPPING:
            self._install(number)
        self.installed = bool(self._previous)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Put back what was there before, which now gets a signal that has not ended the training by then."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()
        self.installed = False
        if self.requested and not self._passed_on and error is None:
            self._passed_on = True
            signal.raise_signal(self.requested)

    def _install(self, number: int) -> None:
        previous = signal.getsignal(number)
        if previous is None or previous == signal.SIG_IGN:
            return
        try:
            signal.signal(number, self._note)
        except ValueError:  # not the main thread of the main interpreter
            return
        self._previous[number] = previous

    def _note(self, number: int, frame: FrameType | None) -> None:
        """The handler; `frame` is where the program was."""
        del frame
        if number in self._noted and self._clock() - self._noted[number] >= self._echo_seconds:
            self._passed_on = True
            signal.signal(number, self._previous[number])
            signal.raise_signal(number)
        self._noted.setdefault(number, self._clock())
        self.requested = self.requested or number
