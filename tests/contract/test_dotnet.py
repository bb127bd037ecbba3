"""C# client and embedded predictor compared with Python: same numbers and same errors."""

import ctypes.util
import subprocess
import sys
from pathlib import Path

import pytest
from csharp import OLDER, assembly, built_solution, run_program

HAS_CULTURES = sys.platform != "linux" or ctypes.util.find_library("icuuc") is not None
CULTURE_CLASSES = (
    "BarPanelTests",
    "CovariateSourceTests",
    "CultureTests",
    "EmbeddedPathSimulationTests",
    "EmbeddedPredictorTests",
    "FakeForecastLedgerTests",
    "FakeModelLifecycleTests",
    "FakeStockPredictorTests",
    "GrpcPathSimulationTests",
    "GrpcPredictorTests",
    "GrpcStreamTests",
    "ManagedPredictorTests",
    "RecordTests",
)
"""C# test classes that depend on culture or framework: they read or write numbers and dates, or call a predictor."""
CULTURE = "tr-TR"
"""A culture with a decimal comma and a dotted capital i."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dotnet() -> str:
    return built_solution()


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the expected results of the C# tests."""
    folder = tmp_path_factory.mktemp("fixture")
    writer = Path(__file__).with_name("dotnet_fixture.py")
    subprocess.run([sys.executable, str(writer), str(folder)], check=True)
    return str(folder)


def test_csharp_answers_as_python_does(dotnet: str, fixture: str) -> None:
    variables = {"QUANTRA_TEST_FIXTURE": fixture, "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1"}
    done = run_program(dotnet, str(assembly("Quantra.Client.Tests")), more=variables)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not HAS_CULTURES, reason="this machine has no ICU (on Debian: libicu72), so .NET has no cultures")
def test_csharp_answers_alike_on_the_older_framework_in_another_culture(dotnet: str, fixture: str) -> None:
    classes = [part for name in CULTURE_CLASSES for part in ("-class", f"Quantra.Client.Tests.{name}")]
    variables = {"QUANTRA_TEST_FIXTURE": fixture, "QUANTRA_TEST_CULTURE": CULTURE}
    older = str(assembly("Quantra.Client.Tests", f"with-{OLDER}"))
    done = run_program(dotnet, older, *classes, "-trait-", "Category=Slow", more=variables)
    assert done.returncode == 0, done.stdout + done.stderr
