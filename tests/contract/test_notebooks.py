"""The notebooks in examples run from top to bottom, and every cell of code shows something."""

import json
from pathlib import Path

import pytest
from market import bokeh_panel
from shown_commands import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
MAX_WAIT_S = 120


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    import nbformat  # here, because the import takes seconds
    from nbclient import NotebookClient

    (tmp_path / "demo").mkdir()
    bokeh_panel("AAPL", "IBM").last(900).write_csv(tmp_path / "demo" / "bars.csv")
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=MAX_WAIT_S, resources={"metadata": {"path": str(tmp_path)}}).execute()
    silent = [cell.source for cell in notebook.cells if cell.cell_type == "code" and not cell.outputs]
    assert silent == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_output(path: Path) -> None:
    assert [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell.get("outputs")] == []
