"""Whether a forecast knows the future: later bars are replaced by noise, then deleted, and nothing may change."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from predictor.audit_record import AuditVerdict, FutureCheck
from predictor.bars import BarPanel
from trainers.stock.audit.noise import adjusted_panel, with_noise
from trainers.stock.audit.stages import Staging, different, forecast_gap

SCALING = "fitted numbers"

DELETION_TOLERANCE = 1e-4
"""Relative. Without later bars arrays are shorter, and sums may be ordered otherwise; nothing else may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """The numbers that training fits on bars, such as the features' scaling."""

    fit: Callable[[BarPanel], bytes]
    last: int
    """Position of the last session that they may be fitted on."""


def check_future(bars: BarPanel, staging: Staging, positions: Sequence[int], fitting: Fitting) -> FutureCheck:
    """Compare everything at some sessions, bit for bit, with and without noise after them.

    Args:
        bars: a long history.
        staging: what is audited.
        positions: of the sessions on the date axis; at least one bar follows each.
        fitting: what is fitted.
    """
    plain = adjusted_panel(bars)
    base = staging(plain)
    changed: dict[str, int] = {}
    gaps: list[float | None] = []
    for position in positions:
        session, before = int(bars.sessions[position]), base.at(position)
        found = different(before, staging(with_noise(plain, position)).at(position))
        changed = dict.fromkeys(found, session) | changed
        gaps.append(forecast_gap(before, staging(plain.until(session)).at(position)))
    if fitting.fit(plain) != fitting.fit(with_noise(plain, fitting.last)):
        changed[SCALING] = int(bars.sessions[fitting.last])
    gap = None if None in gaps else max((found for found in gaps if found is not None), default=0.0)
    sound = not changed and gap is not None and gap <= DELETION_TOLERANCE
    return FutureCheck(
        verdict=AuditVerdict.PASS if sound else AuditVerdict.FAIL,
        sessions=tuple(int(bars.sessions[position]) for position in positions),
        stages=(*base.at(positions[0]), SCALING),
        changed=tuple(sorted(changed)),
        first_changed=min(changed.values()) if changed else None,
        deletion_gap=gap,
    )
