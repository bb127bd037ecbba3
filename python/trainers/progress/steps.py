"""Work whose steps a person watches: a live bar with the time left on a terminal, plain lines elsewhere."""

from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Final, Protocol, TypeVar, final

if TYPE_CHECKING:
    from rich.progress import Progress

MOST_LINES: Final = 20
"""Of one piece of work, where there is no terminal."""

StepT = TypeVar("StepT")


class StepProgress(Protocol):
    """Passes steps on, each when it is to be done, and shows how far the work is."""

    def __call__(self, steps: Sequence[StepT], /, *, title: str, tell: Callable[[StepT], str]) -> Iterator[StepT]:
        """The same steps, in the same order.

        Args:
            steps: of which each takes about as long as another.
            title: what is done.
            tell: a step in words.
        """
        ...


def unwatched(steps: Sequence[StepT], /, *, title: str, tell: Callable[[StepT], str]) -> Iterator[StepT]:  # noqa: ARG001 - as others
    """Nobody watches."""
    return iter(steps)


def watched_on(stream: IO[str]) -> StepProgress:
    """A live bar if the stream is a terminal, which needs the extra `cli`; at most MOST_LINES lines if not."""
    return _OnABar(stream) if stream.isatty() else _InLines(stream)


@final
class _InLines:
    """A line as a step begins: of all of them, or of every so many where there are more than MOST_LINES."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __call__(self, steps: Sequence[StepT], /, *, title: str, tell: Callable[[StepT], str]) -> Iterator[StepT]:
        every = -(-len(steps) // MOST_LINES)
        for count, step in enumerate(steps):
            if count % every == 0:
                self._stream.write(f"{title} {count + 1}/{len(steps)}  {tell(step)}\n")
                self._stream.flush()
            yield step


@final
class _OnABar:
    """A bar that counts what is done, says what is being done, and how long the rest will take."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __call__(self, steps: Sequence[StepT], /, *, title: str, tell: Callable[[StepT], str]) -> Iterator[StepT]:
        with _bar(self._stream) as bar:
            task = bar.add_task(title, total=len(steps), state="")
            for step in steps:
                bar.update(task, state=tell(step))
                yield step
                bar.advance(task)


def _bar(stream: IO[str]) -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    state = TextColumn("{task.fields[state]}", markup=False)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        state,
        console=Console(file=stream),
        transient=True,
    )
