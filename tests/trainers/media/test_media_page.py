"""Media pages: atomic writing, and early refusal of unwritable paths."""

import errno
import math
import os
from pathlib import Path

import pytest

from trainers.media.errors import PageError
from trainers.media.page import UNKNOWN, check_file, figure, percent, plain, write_page


def test_a_page_is_written_whole_in_place_of_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    write_page(path, "neu: ç")
    assert path.read_text("utf-8") == "neu: ç"
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_page_that_cannot_be_written_is_one_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(PageError, match=r"gone/page\.html cannot be written \(No such file or directory\)"):
        write_page(tmp_path / "gone" / "page.html", "text")


def test_a_page_for_which_there_is_no_room_leaves_the_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "page.html"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PageError, match="No space left on device"):
        write_page(path, "new")
    assert path.read_text("utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_for_a_page_is_refused_before_the_work(tmp_path: Path) -> None:
    check_file(tmp_path / "page.html")
    with pytest.raises(PageError, match="is a folder; name a file"):
        check_file(tmp_path)
    with pytest.raises(PageError, match=r"folder .*gone does not exist; create it"):
        check_file(tmp_path / "gone" / "page.html")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_others_is_refused_before_the_work(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PageError, match="no write permission"):
        check_file(tmp_path / "page.html")


def test_a_figure_that_is_no_number_is_shown_as_unknown() -> None:
    assert figure("share", 0.125, percent).text == "12.5\N{NO-BREAK SPACE}%"
    assert figure("share", math.nan, percent).value is None
    assert figure("share", math.inf, percent).text == UNKNOWN
    assert plain(-1.5) == "−1.500"  # noqa: RUF001 - a minus
