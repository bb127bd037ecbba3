"""C# hosting package: servers, clients and training runs of a .NET host against this Python."""

import pytest
from csharp import assembly, built_solution, run_program


@pytest.mark.slow
def test_servers_clients_and_trainings_of_a_host_do_as_they_promise() -> None:
    done = run_program(built_solution(), str(assembly("Quantra.Client.Hosting.Tests")))
    assert done.returncode == 0, done.stdout + done.stderr
