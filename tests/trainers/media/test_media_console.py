"""What commands say while they work: counts on a terminal, and nothing where nobody or a program reads."""

import sys

import pytest

from trainers.media.console import counter


@pytest.mark.parametrize(
    ("terminal", "silent", "shown"),
    [(True, False, "\rencoded 1 of 2 images\rencoded 2 of 2 images\n"), (True, True, ""), (False, False, "")],
)
def test_counts_are_shown_to_a_person_at_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, terminal: bool, silent: bool, shown: str
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    tell = counter("encoded", "images", silent=silent)
    tell(1, 2)
    tell(2, 2)
    assert capsys.readouterr().err == shown
