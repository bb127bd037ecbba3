"""CONTRIBUTING.md: its commands run, its files and tables are there."""

import re
from pathlib import Path

import pytest
from shown_commands import ROOT, run_command

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
COMMANDS = [
    line for block in re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]
PATHS = [path for path in re.findall(r"`([\w./-]+/[\w./-]+)`", PAGE) if "NAME" not in path]
LINES = {
    "_NETWORKS": "python/predictor/networks/kinds.py",
    "_NORMALISERS": "python/predictor/networks/kinds.py",
    "Scale": "python/trainers/stock/recipe.py",
    "_TABLE": "python/predictor/features/operators.py",
    "OPERATOR_SET": "python/predictor/features/operators.py",
    "ANSWERS": "python/predictor/errors.py",
    "BASELINES": "python/trainers/stock/evaluation/baselines/table.py",
}
"""The tables of the recipes, and where each of them is."""


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_page_runs(line: str) -> None:
    run_command(line, ROOT)


@pytest.mark.parametrize("path", sorted(set(PATHS)))
def test_a_path_of_the_page_is_there(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("table", LINES)
def test_a_table_of_the_recipes_is_where_the_page_says(table: str) -> None:
    assert f"`{table}`" in PAGE
    assert f"`{LINES[table]}`" in PAGE
    assert re.search(rf"^{table}\b.* = ", (ROOT / LINES[table]).read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)", PAGE))))
def test_a_link_of_the_page_leads_to_a_file(link: str) -> None:
    assert Path(ROOT / link).exists()
