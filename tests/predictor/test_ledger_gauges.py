"""Prometheus gauges of a ledger."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from market import bokeh_panel

from predictor.evidence import CoverageSide, Lamp
from predictor.ledger import EvidenceRecord, Ledger
from predictor.model_health import COVERAGE, SKILL
from predictor.server.metrics import LedgerGauges

PANEL = bokeh_panel("IBM").last(5)
DAYS = PANEL.sessions.tolist()
BAND = f"{COVERAGE} {CoverageSide.TOO_FEW}"
Samples = dict[tuple[str, ...], float]


def evidence(session: int, monitor: str, lamp: Lamp, share: float | None = None) -> EvidenceRecord:
    state = {"share": share, "promised": 0.8}
    return EvidenceRecord(model="mine", version=2, monitor=monitor, horizon=5, session=session, lamp=lamp, state=state)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.db", create=True) as opened:
        yield opened


def samples_of(gauges: LedgerGauges) -> Samples:
    """Values by name and labels."""
    found = [sample for family in gauges.read_families() for sample in family.samples]
    return {(sample.name, *sample.labels.values()): sample.value for sample in found}


def test_a_scrape_has_the_lamps_the_shares_and_the_last_session(ledger: Ledger) -> None:
    ledger.add_bars(PANEL)
    ledger.append([evidence(DAYS[2], BAND, Lamp.RED, 0.5)])
    ledger.append(
        [
            evidence(DAYS[3], BAND, Lamp.AMBER, 0.74),
            evidence(DAYS[3], f"{COVERAGE} {CoverageSide.TOO_MANY}", Lamp.LEARNING, 0.7),
            evidence(DAYS[3], f"{SKILL} har@1", Lamp.GREEN),
        ]
    )
    day = datetime.strptime(str(DAYS[-1]), "%Y%m%d").replace(tzinfo=UTC)
    assert samples_of(LedgerGauges(ledger)) == {
        ("quantra_model_lamp", "mine", "2", BAND, "5"): 2,
        ("quantra_model_lamp", "mine", "2", f"{COVERAGE} {CoverageSide.TOO_MANY}", "5"): 0,
        ("quantra_model_lamp", "mine", "2", f"{SKILL} har@1", "5"): 1,
        ("quantra_band_share", "mine", "2", "5"): 0.74,
        ("quantra_band_promised", "mine", "2", "5"): 0.8,
        ("quantra_ledger_last_session_timestamp_seconds",): day.timestamp(),
    }


def test_scrapes_of_the_same_seconds_read_the_ledger_once(ledger: Ledger) -> None:
    now_s = 0.0
    gauges = LedgerGauges(ledger, clock=lambda: now_s)
    assert samples_of(gauges) == {}
    ledger.append([evidence(DAYS[2], BAND, Lamp.RED)])
    now_s = 4.9
    assert samples_of(gauges) == {}
    now_s = 5.1
    assert samples_of(gauges) == {("quantra_model_lamp", "mine", "2", BAND, "5"): 3}


def test_a_damaged_ledger_has_no_gauges_and_a_warning_without_its_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path, create=True) as made:
        made.append([evidence(DAYS[2], BAND, Lamp.RED)])
        page = made.query("select rootpage from sqlite_master where name = 'evidence'")[0]["rootpage"]
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"x" * 4096)
    with Ledger.open(path) as damaged, caplog.at_level(logging.WARNING):
        assert samples_of(LedgerGauges(damaged)) == {}
    (record,) = caplog.records
    assert record.message.startswith("no metrics: the ledger: the ledger is damaged")
