"""CONTRIBUTING.md: its commands and the tables it points to exist."""

import re
import shlex

import pytest
from shown_commands import ROOT

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
    "BASELINES": "python/trainers/stock/evaluation/baselines/__init__.py",
}
"""The file of each table that a recipe names."""


TESTS = [line for line in COMMANDS if line.startswith("python -m pytest")]


@pytest.mark.parametrize("line", TESTS)
def test_the_tests_that_the_page_runs_exist(line: str) -> None:
    path, option, expression = shlex.split(line)[3:]
    assert option in {"-k", "-m"}
    name = expression if option == "-k" else ""
    assert re.search(rf"^def test_\w*{name}", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


def test_the_checks_of_the_page_are_those_of_make_check() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    checks = re.findall(r"^\t\$\(BIN\)/(.+)$", makefile, re.MULTILINE)
    assert set(COMMANDS) - set(TESTS) <= set(checks)


@pytest.mark.parametrize("table", LINES)
def test_a_table_of_the_recipes_is_where_the_page_says(table: str) -> None:
    assert f"`{table}`" in PAGE
    assert f"`{LINES[table]}`" in PAGE
    assert re.search(rf"^{table}\b.* = ", (ROOT / LINES[table]).read_text(encoding="utf-8"), re.MULTILINE)
