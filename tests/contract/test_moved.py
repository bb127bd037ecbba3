"""docs/moved.md: where each file is that had another path once."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)
ROWS: list[tuple[str, str]] = ROW.findall((ROOT / "docs" / "moved.md").read_text(encoding="utf-8"))
"""Old path and new path."""


def test_the_table_is_read_whole() -> None:
    lines = (ROOT / "docs" / "moved.md").read_text(encoding="utf-8").splitlines()
    assert len(ROWS) == len([line for line in lines if line.startswith("| `")]) > 100


def test_every_new_path_is_a_file() -> None:
    assert [now for _, now in ROWS if not (ROOT / now).is_file()] == []


def test_no_file_has_an_old_path() -> None:
    assert [then for then, _ in ROWS if (ROOT / then).exists()] == []


def test_each_old_path_stands_once_and_in_order() -> None:
    old = [then for then, _ in ROWS]
    assert old == sorted(set(old))
