"""CONTRIBUTING.md: its commands run, and the tables it points to exist."""

import re

import pytest
from shown_commands import ROOT, run_command

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
COMMANDS = [
    line for block in re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]
LINES = {
    "_NETWORKS": "python/predictor/networks/kinds.py",
    "_NORMALISERS": "python/predictor/networks/kinds.py",
    "Scale": "python/trainers/stock/recipe.py",
    "_TABLE": "python/predictor/features/operators.py",
    "OPERATOR_SET": "python/predictor/features/operators.py",
    "ANSWERS": "python/predictor/errors.py",
    "BASELINES": "python/trainers/stock/evaluation/baselines/table.py",
}
"""The file of each table that a recipe names."""


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_page_runs(line: str) -> None:
    # The named tests run on their own.
    run_command(f"{line} --collect-only -q" if line.startswith("python -m pytest") else line, ROOT)


@pytest.mark.parametrize("table", LINES)
def test_a_table_of_the_recipes_is_where_the_page_says(table: str) -> None:
    assert f"`{table}`" in PAGE
    assert f"`{LINES[table]}`" in PAGE
    assert re.search(rf"^{table}\b.* = ", (ROOT / LINES[table]).read_text(encoding="utf-8"), re.MULTILINE)
