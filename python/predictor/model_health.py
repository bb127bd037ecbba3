"""The health of a model version: tests of coverage and skill with a ledger's scores."""

import json
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Final, NamedTuple

import numpy as np

from predictor.arrays import FloatArray
from predictor.evidence import (
    CoverageSide,
    DailyShares,
    Lamp,
    SkillEvidence,
    assess_coverage,
    compare_losses,
)
from predictor.ledger import EvidenceRecord, Ledger

COVERAGE: Final = "coverage"
"""The monitors of coverage are `coverage too few` and `coverage too many`."""
SKILL: Final = "skill against"


class ModelVersion(NamedTuple):
    """One version of a model, or a baseline."""

    model: str
    number: int

    @property
    def reference(self) -> str:
        """Such as mine@3."""
        return f"{self.model}@{self.number}"


class ForecastAxes(NamedTuple):
    """The horizons and quantiles of a version's forecasts; empty without forecasts."""

    horizons: tuple[int, ...] = ()
    quantiles: tuple[float, ...] = ()


def read_axes(ledger: Ledger, subject: ModelVersion) -> ForecastAxes:
    """The axes of a version's recorded forecasts, without those for clients."""
    rows = ledger.query(
        "select distinct horizons, quantiles from forecast where model = ? and version = ? and role <> 'client'",
        subject,
    )
    if not rows:
        return ForecastAxes()
    return ForecastAxes(tuple(json.loads(rows[-1]["horizons"])), tuple(json.loads(rows[-1]["quantiles"])))


def assess_model(
    ledger: Ledger, subject: ModelVersion, rivals: Sequence[ModelVersion], *, first_session: int = 0
) -> tuple[EvidenceRecord, ...]:
    """Test a version's coverage, and its skill against rivals, at each horizon; the caller writes the records.

    Only prospective forecasts count, with their first labels. Forecasts for clients are left out. After a person has
    dealt with an alarm, start again from that session with `first_session`, yyyymmdd.
    """
    session = ledger.last_session
    axes = read_axes(ledger, subject)
    if not axes.horizons:
        return ()
    promised = float(axes.quantiles[-1] - axes.quantiles[0])
    records: list[EvidenceRecord] = []
    for index, horizon in enumerate(axes.horizons):
        shares = _read_shares(ledger, subject, index, horizon, first_session)
        for side in CoverageSide if 0 < promised < 1 else ():
            coverage = assess_coverage(shares, promised, side, horizon=horizon)
            state = _encode_state((name, value) for name, value in coverage._asdict().items() if name != "lamp")
            state["promised"] = promised
            records.append(_record(subject, f"{COVERAGE} {side}", horizon, session, coverage.lamp, state))
        for rival in rivals:
            skill = compare_losses(*_read_daily_losses(ledger, rival, subject, horizon, first_session), horizon=horizon)
            state = _encode_state(skill._asdict().items())
            monitor = f"{SKILL} {rival.reference}"
            records.append(_record(subject, monitor, horizon, session, choose_skill_lamp(skill), state))
    return tuple(records)


def list_newest_evidence(ledger: Ledger, model: str = "", version: int = 0) -> list[EvidenceRecord]:
    """Return each version's evidence at its last tested session; an empty name or 0 selects all."""
    filters = {name: value for name, value in {"model": model, "version": version}.items() if value}
    condition = " and ".join(f"{name} = ?" for name in filters) or "true"
    last = f"select model, version, max(session) from evidence where {condition} group by model, version"  # noqa: S608 - no value is in the text
    return ledger.records(
        EvidenceRecord, f"{condition} and (model, version, session) in ({last})", [*filters.values(), *filters.values()]
    )


def choose_skill_lamp(skill: SkillEvidence) -> Lamp:
    """Green if the subject is better, red if it is worse, learning while the confidence sequence contains 0."""
    if skill.lower > 0:
        return Lamp.GREEN
    return Lamp.RED if skill.upper < 0 else Lamp.LEARNING


def choose_worst_lamp(records: Sequence[EvidenceRecord]) -> Lamp:
    """The lamp of a model: its worst alarm, else green if all tests for too few outcomes are green."""
    lamps = [record.lamp for record in records]
    alarm = next((lamp for lamp in (Lamp.RED, Lamp.AMBER) if lamp in lamps), None)
    if alarm is not None:
        return alarm
    narrow = [record.lamp for record in records if record.monitor == f"{COVERAGE} {CoverageSide.TOO_FEW}"]
    return Lamp.GREEN if narrow and set(narrow) == {Lamp.GREEN} else Lamp.LEARNING


def _record(
    subject: ModelVersion, monitor: str, horizon: int, session: int, lamp: Lamp, state: dict[str, float | None]
) -> EvidenceRecord:
    return EvidenceRecord(
        model=subject.model,
        version=subject.number,
        monitor=monitor,
        horizon=horizon,
        session=session,
        lamp=lamp,
        state=state,
    )


def _encode_state(numbers: Iterable[tuple[str, float]]) -> dict[str, float | None]:
    """Numbers for JSON, in which those that are not finite become null."""
    return {name: value if isfinite(value) else None for name, value in numbers}


_OWN: Final = "f.model = ? and f.version = ? and f.role <> 'client' and f.is_prospective = 1 and f.as_of >= ?"


def _read_shares(ledger: Ledger, subject: ModelVersion, index: int, horizon: int, first_session: int) -> DailyShares:
    """The outcomes of each date inside the band, at one horizon."""
    columns = ledger.numbers(
        "select f.as_of, count(*), sum(coalesce(s.is_inside, 0)), count(*) - count(s.is_inside), "  # noqa: S608 - no value in it
        f"max(cast(substr(f.target_sessions, {2 + 10 * index}, 8) as integer)) from forecast f "
        "left join score s on s.forecast = f.id and s.horizon = ? and s.revision = 0 "
        f"where {_OWN} group by f.as_of order by f.as_of",
        (horizon, *subject, first_session),
    )
    dates, symbols, inside, unknown, sessions = columns.astype(np.int32).T
    is_due = sessions <= ledger.last_session
    return DailyShares(dates=dates, symbols=symbols, inside=inside, unknown=unknown, is_due=is_due)


def read_level_shares(ledger: Ledger, subject: ModelVersion, horizon: int, levels: int) -> FloatArray:
    """[D, Q] the share of each date's outcomes at or below each of the version's quantiles, at one horizon."""
    shares = ", ".join(f"avg(cast(substr(s.below, {level}, 1) as real))" for level in range(1, levels + 1))
    return ledger.numbers(
        f"select {shares} from forecast f "  # noqa: S608 - no value is in the text
        "join score s on s.forecast = f.id and s.horizon = ? and s.revision = 0 "
        f"where {_OWN} group by f.as_of order by f.as_of",
        (horizon, *subject, 0),
    )


def _read_daily_losses(
    ledger: Ledger, theirs: ModelVersion, ours: ModelVersion, horizon: int, first_session: int
) -> tuple[FloatArray, FloatArray]:
    """[D] mean losses of both by date, on the symbols and dates that both have scores of."""
    theirs_daily, ours_daily = ledger.numbers(
        "select avg(t.pinball), avg(s.pinball) from forecast f "  # noqa: S608 - no value is in the text
        "join forecast g on g.symbol = f.symbol and g.as_of = f.as_of and g.model = ? and g.version = ? "
        "and g.role <> 'client' and g.is_prospective = 1 "
        "join score s on s.forecast = f.id and s.horizon = ? and s.revision = 0 "
        "join score t on t.forecast = g.id and t.horizon = s.horizon and t.revision = 0 "
        f"where {_OWN} group by f.as_of order by f.as_of",
        (*theirs, horizon, *ours, first_session),
    ).T
    return theirs_daily, ours_daily
