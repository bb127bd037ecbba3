"""Progress in a notebook: messages of a real kernel."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

TRAINING = """
import sys
from loop_reports import epoch, window
from trainers.loop import TrainingNotice
from trainers.progress import progress_for
reports = [window(), TrainingNotice(message="[a] notice"), window(1), epoch(), window(epoch=1), window(1, epoch=1)]
"""
LIVE = "for report in progress_for(sys.stdout)(reports): pass"
LEFT_EARLY = "for report in progress_for(sys.stdout)(reports): break"
ELSEWHERE = """
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()) as kept:
    for report in progress_for(sys.stdout)(reports): pass
print(type(progress_for(kept)).__name__)
"""
LINE = "[a] line " * 30
TOLD = f"""
from trainers.stock.progress_output import tell
tell({LINE!r})
"""


@dataclass
class Cell:
    """Output below a notebook cell."""

    text: str = ""
    lines: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """All states of each overwritten line, by name."""

    def on_losses(self, message: dict[str, Any]) -> None:
        """Apply a kernel message."""
        told: dict[str, Any] = message["content"]
        match message["msg_type"]:
            case "stream":
                self.text += told["text"]
            case "display_data":
                self.lines[told["transient"]["display_id"]] = [told["data"]["text/plain"]]
            case "update_display_data":
                self.lines[told["transient"]["display_id"]].append(told["data"]["text/plain"])
            case "error":
                pytest.fail("\n".join(told["traceback"]))
            case _:
                pass


class Notebook:
    """A client of a kernel that runs cells."""

    def __init__(self, kernel: KernelManager) -> None:
        self._client = kernel.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=60)

    def run(self, code: str) -> Cell:
        """Run one cell to its end."""
        cell = Cell()
        self._client.execute_interactive(code, output_hook=cell.on_losses, timeout=60)
        return cell

    def close(self) -> None:
        self._client.stop_channels()


@pytest.fixture(scope="module")
def notebook() -> Iterator[Notebook]:
    kernel = KernelManager(kernel_name="python3")
    kernel.start_kernel(env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    notebook = Notebook(kernel)
    try:
        notebook.run(TRAINING)
        yield notebook
    finally:
        notebook.close()
        kernel.shutdown_kernel(now=True)


def only_line(states: dict[str, list[str]]) -> Sequence[str]:
    """Successive states of the only output line."""
    (line,) = states.values()
    return line


def test_one_line_is_written_over_and_ends_with_the_last_numbers(notebook: Notebook) -> None:
    line = only_line(notebook.run(LIVE).lines)
    assert line[0] == "starting"
    assert line[-1].startswith(f"epoch 2/3 {'━' * 20} 2/2 loss 0.5000  validation 0.1250  ")


def test_a_line_that_is_left_early_has_the_last_numbers_too(notebook: Notebook) -> None:
    assert only_line(notebook.run(LEFT_EARLY).lines)[-1].startswith(f"epoch 1/3 {'━' * 10}{'┄' * 10} 1/2 loss 0.5000  ")


def test_notices_are_text_of_the_cell(notebook: Notebook) -> None:
    assert notebook.run(LIVE).text == "! [a] notice\n"


def test_what_is_told_is_text_of_the_cell_which_wraps_it(notebook: Notebook) -> None:
    cell = notebook.run(TOLD)
    assert (cell.text, cell.lines) == (LINE + "\n", {})


def test_text_that_is_kept_elsewhere_has_plain_lines(notebook: Notebook) -> None:
    cell = notebook.run(ELSEWHERE)
    assert (cell.text, cell.lines) == ("PlainProgress\n", {})
