"""Files in `deploy`: they parse, their flags exist, and the health check works against a real server."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import metadata, version
from pathlib import Path
from typing import Any

import pytest
import yaml
from canned_service import CannedService, forecast_of
from serving import serving

from predictor.server.__main__ import _create_parser
from predictor.server.check import main as check

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


def documents(path: Path) -> Iterator[dict[str, Any]]:
    return (one for one in yaml.safe_load_all(path.read_text()) if one)


def words(value: Any) -> Iterator[str]:
    """Every string in a document."""
    if isinstance(value, dict):
        for one in value.values():
            yield from words(one)
    elif isinstance(value, list):
        for one in value:
            yield from words(one)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_what_kubernetes_reads(path: Path) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    for document in documents(path):
        validate.validate(document, "1.31", strict=True)


def validate_ray_cluster(document: dict[str, Any]) -> None:
    """Check the fields of a RayCluster, whose schema no validator has, and its pods."""
    validate = pytest.importorskip("kubernetes_validate")
    import jsonschema  # here, because the import takes seconds

    count, text, pod = ({"type": name} for name in ("integer", "string", "object"))
    parameters = {"type": "object", "additionalProperties": text}

    def closed(properties: dict[str, Any]) -> dict[str, Any]:
        return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}

    group = {"rayStartParams": parameters, "template": pod}
    sizes = {"groupName": text, "replicas": count, "minReplicas": count, "maxReplicas": count}
    workers = {"type": "array", "minItems": 1, "items": closed(group | sizes)}
    spec = closed({"rayVersion": text, "headGroupSpec": closed(group), "workerGroupSpecs": workers})
    kind = {"apiVersion": {"const": "ray.io/v1"}, "kind": {"const": "RayCluster"}, "metadata": pod, "spec": spec}
    jsonschema.validate(document, closed(kind))
    for one in (document["spec"]["headGroupSpec"], *document["spec"]["workerGroupSpecs"]):
        validate.validate(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ray"}, **one["template"]}, "1.31", strict=True
        )


def test_the_ray_cluster_is_what_kuberay_reads() -> None:
    (document,) = documents(DEPLOY / "ray" / "cluster.yaml")
    validate_ray_cluster(document)
    assert document["spec"]["rayVersion"] == version("ray")
    del document["spec"]["workerGroupSpecs"][0]["groupName"]
    with pytest.raises(Exception, match="'groupName' is a required property"):
        validate_ray_cluster(document)


def test_the_ray_cluster_shows_a_command_and_extras_that_exist() -> None:
    shown = (DEPLOY / "ray" / "cluster.yaml").read_text()
    flags = [json.loads(line) for line in Path(__file__).with_name("flags.jsonl").read_text().splitlines()]
    known = {spelling for flag in flags if flag["command"] == "quantra forecast" for spelling in flag["spellings"]}
    (command,) = re.findall(r"quantra forecast (.*)", shown)
    assert {"--cluster"} <= {word for word in command.split() if word.startswith("--")} <= known
    (extras,) = re.findall(r"EXTRAS=([a-z,]+)", shown)
    assert set(extras.split(",")) <= set(metadata("quantra").get_all("Provides-Extra") or ())


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.yaml")), ids=lambda path: path.name)
def test_every_file_parses(path: Path) -> None:
    assert list(documents(path))


def test_every_flag_exists() -> None:
    known = set(_create_parser()._option_string_actions)
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    given = [
        word
        for line in re.findall(r"^(?:ENTRYPOINT|CMD) (.*)$", dockerfile, re.MULTILINE)
        for word in yaml.safe_load(line)
    ]
    (compose,) = documents(DEPLOY / "docker" / "compose.yaml")
    given += compose["services"]["quantra"]["command"]
    deployment = next(documents(DEPLOY / "kubernetes" / "deployment.yaml"))
    given += deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    (runtime,) = documents(DEPLOY / "kserve" / "runtime.yaml")
    given += runtime["spec"]["containers"][0]["args"]
    flags = {word for word in given if word.startswith("--")}
    assert flags >= {"--models", "--metrics-port"}
    assert not flags - known


def test_the_image_has_no_warnings_of_its_linter() -> None:
    linter = Path(sys.executable).parent / "hadolint"
    if not linter.exists():
        pytest.skip("there is no hadolint for this system")
    linted = subprocess.run([linter, DEPLOY / "docker" / "Dockerfile"], capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """The units of systemd, for the `quantra` of this environment instead of that in /opt."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze on this system")
    program = shutil.which("quantra", path=Path(sys.executable).parent)
    assert program is not None
    for unit in (DEPLOY / "systemd").iterdir():
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/quantra/bin/quantra", program))
    return sorted(tmp_path.iterdir())


def test_systemd_has_nothing_to_say_about_the_units(units: list[Path]) -> None:
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    said = [line for line in checked.stderr.splitlines() if "quantra" in line]
    assert (checked.returncode, said) == (0, [])


def test_the_units_expose_little_of_the_machine(units: list[Path]) -> None:
    for unit in units:
        if unit.suffix == ".service":
            command = ["systemd-analyze", "security", "--offline=true", "--threshold=30", unit]
            rated = subprocess.run(command, capture_output=True, text=True, check=False)
            assert rated.returncode == 0, rated.stdout


def test_the_units_run_commands_that_exist() -> None:
    found: dict[str, str] = {}
    for unit in (DEPLOY / "systemd").glob("*.service"):
        (line,) = re.findall(r"^ExecStart=/opt/quantra/bin/quantra (.*)$", unit.read_text(), re.MULTILINE)
        found[unit.stem] = line
    verb, *words = found["quantra-serve"].split()
    assert verb == "serve"
    assert {word for word in words if word.startswith("--")} <= set(_create_parser()._option_string_actions)
    shown = (DEPLOY.parent / "docs" / "daily.md").read_text("utf-8")  # test_daily_docs.py runs what it shows
    assert f"\nquantra {found['quantra-daily']}\n" in shown


def test_the_health_check_of_the_image_is_right_about_a_real_server() -> None:
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    (told,) = re.findall(r"HEALTHCHECK .*CMD (\[.*\])", dockerfile)
    _, *command, _ = yaml.safe_load(told)
    with serving(CannedService(forecast_of)) as served:
        assert subprocess.run([sys.executable, *command, served.target], check=False).returncode == 0
        assert check([served.target, "--model", "nonsense"]) == 1
    assert check([served.target]) == 1


def test_nothing_in_them_is_root_or_writes() -> None:
    for container in next(documents(DEPLOY / "kubernetes" / "deployment.yaml"))["spec"]["template"]["spec"][
        "containers"
    ]:
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert re.search(r"^USER \d+$", (DEPLOY / "docker" / "Dockerfile").read_text(), re.MULTILINE)
