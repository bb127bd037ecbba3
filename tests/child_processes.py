"""Child processes of a process, read from /proc."""

from pathlib import Path


def children_of(process: int) -> list[int]:
    """Running child processes of a process."""
    every = (int(place.name) for place in Path("/proc").glob("[0-9]*"))
    return sorted(one for one in every if parent_of(one) == process)


def parent_of(process: int) -> int | None:
    """None if the process has ended."""
    try:
        state, parent = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state == "Z" else int(parent)


def command_of(process: int) -> str:
    """The command line, with NUL between its words; empty if the process has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
