"""Prometheus gauges of a ledger: the lamps of its models, the shares of outcomes in their bands, and its last bars."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, final

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from predictor.errors import LedgerError
from predictor.evidence import CoverageSide, Lamp
from predictor.ledger import EvidenceRecord, Ledger
from predictor.model_health import COVERAGE, list_newest_evidence

LAMP: Final = "quantra_model_lamp"
SHARE: Final = "quantra_band_share"
PROMISED: Final = "quantra_band_promised"
LAST_SESSION: Final = "quantra_ledger_last_session_timestamp_seconds"
NAMES: Final = frozenset({LAMP, SHARE, PROMISED, LAST_SESSION})

_KEPT_S: Final = 5.0
"""Seconds for which the gauges are not read again."""
_NUMBERS: Final = {Lamp.LEARNING: 0, Lamp.GREEN: 1, Lamp.AMBER: 2, Lamp.RED: 3}
_BAND: Final = ("model", "version", "horizon")

_log = logging.getLogger(__name__)


@final
class LedgerGauges:
    """The gauges of a ledger, read at a scrape. Thread-safe.

    Args:
        ledger: The ledger.
        clock: Seconds.
    """

    def __init__(self, ledger: Ledger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._clock = clock
        self._lock = threading.Lock()
        self._families: Sequence[Metric] = ()
        self._expires_s = clock()

    def families(self) -> Iterable[Metric]:
        """The gauges; none, with a warning in the log, if the ledger cannot be read."""
        with self._lock:
            if self._clock() >= self._expires_s:
                self._families = self._read()
                self._expires_s = self._clock() + _KEPT_S
            return self._families

    def _read(self) -> Sequence[Metric]:
        try:
            evidence, session = list_newest_evidence(self._ledger), self._ledger.last_session
        except LedgerError as error:
            _log.warning("no metrics: %s", error.without_address().message)
            return ()
        return [_lamps(evidence), *_bands(evidence), _last_session(session)]


def _lamps(evidence: Sequence[EvidenceRecord]) -> Metric:
    text = "Lamp of a test of a model: 0 learning, 1 green, 2 amber, 3 red."
    family = GaugeMetricFamily(LAMP, text, labels=("model", "version", "monitor", "horizon"))
    for one in evidence:
        family.add_metric((one.model, str(one.version), one.monitor, str(one.horizon)), _NUMBERS[one.lamp])
    return family


def _bands(evidence: Sequence[EvidenceRecord]) -> tuple[Metric, Metric]:
    """The share inside the band and the promised one, by the tests of too few outcomes inside."""
    share = GaugeMetricFamily(SHARE, "Share of outcomes in the band of a model.", labels=_BAND)
    promised = GaugeMetricFamily(PROMISED, "Share of outcomes that the band promises.", labels=_BAND)
    for one in evidence:
        inside = one.number("share")
        if one.monitor == f"{COVERAGE} {CoverageSide.TOO_FEW}" and inside is not None:
            labels = (one.model, str(one.version), str(one.horizon))
            share.add_metric(labels, inside)
            promised.add_metric(labels, one.number("promised") or 0.0)
    return share, promised


def _last_session(session: int) -> Metric:
    family = GaugeMetricFamily(LAST_SESSION, "Day of the newest bar of the ledger, at 0:00 UTC.")
    if session:
        day = datetime(session // 10000, session // 100 % 100, session % 100, tzinfo=UTC)
        family.add_metric((), day.timestamp())
    return family
