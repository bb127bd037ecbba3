"""How far a list of long steps has come: a live bar on a terminal, a line a step elsewhere."""

from collections.abc import Callable, Iterable, Iterator
from typing import IO, TypeVar

StepT = TypeVar("StepT")


def watched(
    steps: Iterable[StepT], *, total: int, tell: Callable[[StepT], str], title: str, stream: IO[str]
) -> Iterator[StepT]:
    """Hand steps on as they are done, and show each.

    Args:
        steps: each comes when it is done.
        total: how many there will be.
        tell: one step in words.
        title: what the steps are of.
        stream: the screen.
    """
    if stream.isatty():
        return _on_a_bar(steps, total, tell, title, stream)
    return _in_lines(steps, total, tell, title, stream)


def _in_lines(
    steps: Iterable[StepT], total: int, tell: Callable[[StepT], str], title: str, stream: IO[str]
) -> Iterator[StepT]:
    for count, step in enumerate(steps, start=1):
        stream.write(f"{title} {count}/{total}  {tell(step)}\n")
        stream.flush()
        yield step


def _on_a_bar(
    steps: Iterable[StepT], total: int, tell: Callable[[StepT], str], title: str, stream: IO[str]
) -> Iterator[StepT]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[state]}"), console=Console(file=stream)) as bar:
        task = bar.add_task(title, total=total, state="")
        for step in steps:
            bar.update(task, advance=1, state=tell(step))
            yield step
