"""`replace_file`: drafts of killed processes do not pile up."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from predictor.replacement import replace_file

KILLED = """
import os, signal, sys
from pathlib import Path
from predictor.replacement import replace_file
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
replace_file(Path(sys.argv[1]), b"half")
"""


def leave_draft(path: Path) -> Path:
    """The draft of a process that was killed while it wrote a file."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", KILLED, path], check=False, env=environment)
    (draft,) = (one for one in path.parent.iterdir() if one.name.startswith(f".{path.name}"))
    return draft


def set_age(path: Path, seconds: float) -> None:
    at = time.time() - seconds
    os.utime(path, (at, at))


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_write_removes_the_old_draft_of_a_killed_process(tmp_path: Path) -> None:
    path = tmp_path / "history[1].json"
    replace_file(path, b"whole")
    draft = leave_draft(path)
    replace_file(path, b"newer")
    assert draft.exists()  # it may belong to a process that still writes
    set_age(draft, 4000)
    replace_file(path, b"newest")
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"newest"


def test_a_write_leaves_other_hidden_files(tmp_path: Path) -> None:
    for name in (".a.json.swp", ".b.json.x.draft", "a.json.draft"):
        (tmp_path / name).touch()
        set_age(tmp_path / name, 4000)
    replace_file(tmp_path / "a.json", b"")
    assert len(list(tmp_path.iterdir())) == 4
