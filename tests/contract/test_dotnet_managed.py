"""C# package that computes forecasts without Python: its tests run from committed artifacts."""

import pytest
from csharp import assembly, built_solution, run_program


@pytest.mark.slow
def test_models_are_computed_without_python() -> None:
    nothing_on_the_path = {"PATH": ""}
    done = run_program(built_solution(), str(assembly("Quantra.Client.Managed.Tests")), more=nothing_on_the_path)
    assert done.returncode == 0, done.stdout + done.stderr
