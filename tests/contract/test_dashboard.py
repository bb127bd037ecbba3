"""Grafana dashboards and Prometheus rules in `deploy`: well-formed, and using metrics that the server exports."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from market import bokeh_panel

from predictor.call_context import OK, Observation
from predictor.evidence import Lamp
from predictor.ledger import EvidenceRecord, Ledger
from predictor.server.metrics import LedgerGauges, Metrics, ServerGauges
from predictor.server.observed_calls import ObservedCall

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARDS: dict[str, Any] = {
    path.stem: json.loads(path.read_text("utf-8")) for path in sorted((DEPLOY / "grafana").glob("*.json"))
}
SCRAPE: Any = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))
RULES: Any = yaml.safe_load((DEPLOY / "prometheus" / "quantra-rules.yml").read_text("utf-8"))

PANEL = {
    "type": "object",
    "required": ["id", "type", "title", "description", "datasource", "gridPos", "fieldConfig", "options", "targets"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "type": {"const": "timeseries"},
        "gridPos": {
            "type": "object",
            "required": ["h", "w", "x", "y"],
            "properties": {"w": {"maximum": 24}, "x": {"maximum": 23}},
            "additionalProperties": {"type": "integer", "minimum": 0},
        },
        "targets": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["datasource", "expr", "legendFormat", "refId"],
                "properties": {"expr": {"type": "string", "minLength": 1}, "refId": {"pattern": "^[A-Z]$"}},
            },
        },
    },
}
GRAFANA = {
    "type": "object",
    "required": ["uid", "title", "schemaVersion", "templating", "panels", "time", "refresh"],
    "properties": {
        "schemaVersion": {"type": "integer", "minimum": 36},
        "panels": {"type": "array", "minItems": 1, "items": PANEL},
        "templating": {
            "type": "object",
            "properties": {"list": {"items": {"required": ["name", "type", "query"]}}},
        },
    },
}
ALERTS = {
    "type": "object",
    "required": ["groups"],
    "additionalProperties": False,
    "properties": {
        "groups": {
            "items": {
                "required": ["name", "rules"],
                "properties": {
                    "rules": {
                        "minItems": 1,
                        "items": {
                            "required": ["alert", "expr", "for", "labels", "annotations"],
                            "additionalProperties": False,
                            "properties": {
                                "alert": {"pattern": "^[A-Za-z]+$"},
                                "expr": {"type": "string"},
                                "for": {"pattern": "^[0-9]+m$"},
                                "labels": {"type": "object"},
                                "annotations": {"type": "object"},
                            },
                        },
                    }
                },
            }
        }
    },
}
"""The parts of Grafana's and Prometheus's formats that are used here; no schema of theirs is at hand."""


def expressions() -> list[str]:
    """Every Prometheus expression of panels, variables and alerts."""
    boards = DASHBOARDS.values()
    panels = [target["expr"] for board in boards for panel in board["panels"] for target in panel["targets"]]
    lists = [one for board in boards for one in board["templating"]["list"]]
    variables = [one["query"]["query"] for one in lists if one["type"] == "query"]
    return [*panels, *variables, *(rule["expr"] for group in RULES["groups"] for rule in group["rules"])]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Metrics of a server with a ledger after one forecast."""
    with Ledger.open(tmp_path_factory.mktemp("ledger") / "ledger.db", create=True) as ledger:
        ledger.add_bars(bokeh_panel("IBM").last(5))
        state = {"share": 0.8, "promised": 0.8}
        lamp = EvidenceRecord(
            model="m", version=1, monitor="coverage too few", horizon=1, session=20130301, lamp=Lamp.GREEN, state=state
        )
        ledger.append([lamp])
        return _scrape(LedgerGauges(ledger))


def _scrape(gauges: LedgerGauges) -> str:
    metrics = Metrics()
    held = (0, 0, 0)
    queues = {"predictions": lambda: held}
    metrics.read(
        ServerGauges(versions=lambda: [("m", 1)], queues=queues, sessions=lambda: 0, ledger=gauges.read_families)
    )
    call = ObservedCall(service="s", method="Predict", request_id="r", peer="p", model="m", version=1, took_s=0.1)
    metrics.on_end(call)
    metrics.on_finished(
        Observation(
            method="Predict",
            model="m",
            version=1,
            rows=1,
            code=OK,
            reason="",
            refused=("TOO_FEW_BARS",),
            took_s=0.1,
            queue_s=0.1,
            prepare_s=0.1,
            forward_s=0.1,
            batch_rows=1,
        )
    )
    return metrics.page("")[0].decode()


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_has_the_form_of_one(name: str) -> None:
    import jsonschema  # here, because the import takes seconds

    board = DASHBOARDS[name]
    jsonschema.validate(board, GRAFANA)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_dashboards_have_their_own_ids() -> None:
    assert len({board["uid"] for board in DASHBOARDS.values()}) == len(DASHBOARDS) == 2


def test_the_rules_have_the_form_of_rules() -> None:
    import jsonschema

    jsonschema.validate(RULES, ALERTS)


def test_prometheus_is_told_of_one_server_of_this_machine_and_of_rules_that_there_are() -> None:
    assert [(DEPLOY / "prometheus" / name).is_file() for name in SCRAPE["rule_files"]] == [True]
    (job,) = SCRAPE["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["127.0.0.1:9464"]}]
    assert f'job="{job["job_name"]}"' in RULES["groups"][0]["rules"][0]["expr"]


def test_every_metric_and_label_that_is_asked_for_is_in_a_scrape(scraped: str) -> None:
    there = set(re.findall(r"^(\w+)", scraped, re.MULTILINE))
    asked = {name for text in expressions() for name in re.findall(r"\b(?:quantra|process)_\w+", text)}
    assert asked - there == set()
    known = set(re.findall(r'(\w+)="', scraped)) | {"instance", "job"}  # Prometheus adds these two itself
    named = {name for text in expressions() for name in re.findall(r'(\w+)\s*(?:=~|!=|=)\s*"', text)}
    assert named - known == set()


def test_the_dashboards_show_every_metric_of_ours(scraped: str) -> None:
    asked = " ".join(expressions())
    families = set(re.findall(r"^# TYPE (quantra_\w+)", scraped, re.MULTILINE))
    assert {name for name in families if name not in asked} == set()


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_do_not_overlap(name: str) -> None:
    places = [panel["gridPos"] for panel in DASHBOARDS[name]["panels"]]
    cells = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
