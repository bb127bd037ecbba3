"""docs/training-loop.md documents every JSON line of a training run with its fields."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from trainers.progress.report_logs import KINDS
from trainers.stock.progress_output import make_announcer, make_warner

PAGE = (Path(__file__).parents[2] / "docs" / "training-loop.md").read_text(encoding="utf-8")
OF_COMMANDS = {"trained": {"artifact", "card"}, "finished": {"artifact"}, "stopped": {"message", "signal"}}
"""Output of a command, as test_stock_command.py checks it."""


def documented() -> dict[str, set[str]]:
    """Documented fields of each kind of line."""
    rows = re.findall(r"^\| `([a-z]+)` \| .* \| (.*) \|$", PAGE, re.MULTILINE)
    return {kind: set(re.findall(r"`(\w+)`", named)) for kind, named in rows}


def test_the_page_has_the_fields_of_every_report(capsys: pytest.CaptureFixture[str]) -> None:
    reports = {name: {field.name for field in fields(kind)} for kind, name in KINDS.items() if name != "validation"}
    make_announcer(as_json=True)("computing features")
    make_warner(as_json=True)("a doubt")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = {line["kind"]: set(line) - {"kind"} for line in lines}
    assert documented() == reports | told | OF_COMMANDS
