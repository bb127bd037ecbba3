"""Console output of the media commands: escaped names, and progress only on a terminal."""

import sys

import pytest

from trainers.media.console import echo, make_progress_counter


@pytest.mark.parametrize(
    ("terminal", "silent", "shown"),
    [(True, False, "\rencoded 1 of 2 images\rencoded 2 of 2 images\n"), (True, True, ""), (False, False, "")],
)
def test_counts_are_shown_to_a_person_at_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, terminal: bool, silent: bool, shown: str
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    tell = make_progress_counter("encoded", "images", silent=silent)
    tell(1, 2)
    tell(2, 2)
    assert capsys.readouterr().err == shown


def test_escapes_in_a_name_do_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    echo("! a\x1b[2J\x07\r.png was left out: “zê\u200cr”\nand more")
    assert capsys.readouterr().err == "! a\ufffd[2J\ufffd\ufffd.png was left out: “zê\u200cr”\nand more\n"
