"""What commands say is text, whoever wrote the names in it."""

import pytest

from trainers.media.console import say


def test_escapes_in_a_name_do_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("! a\x1b[2J\x07\r.png was left out: “zê\u200cr”\nand more")
    assert capsys.readouterr().err == "! a\ufffd[2J\ufffd\ufffd.png was left out: “zê\u200cr”\nand more\n"
