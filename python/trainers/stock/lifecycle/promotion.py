"""The gates of a promotion, and promotions and rollbacks with their events in a ledger."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from predictor.audit_record import read_audit
from predictor.errors import ArtifactError, ConfigurationError, InSampleError, format_date, format_names
from predictor.ledger import Ledger, LedgerEvent
from predictor.lifecycle import PromotionResult
from predictor.model_health import ModelVersion
from predictor.registry import (
    CHAMPION,
    AliasMove,
    GateResult,
    promote_version,
    read_aliases,
    read_moves,
    roll_back,
)
from trainers.stock.lifecycle.version_comparison import ComparedVersion, VersionComparison

GATES = ("losses", "symbols", "audit", "shadow", "replay")
SHADOW_SESSIONS = 20
"""Sessions that a version forecasts together with the champion before it may replace it."""
REPLAY = "replay"
"""Kind of the events that record replays; their detail has the counts `equal`, `different` and `failed`, and the
`weights_hash` of the forecasts."""


def check_gates(
    champion: ComparedVersion | None,
    challenger: ComparedVersion,
    *,
    comparison: VersionComparison | None,
    ledger: Ledger | None,
    overridden: Collection[str] = (),
    uncompared: str = "none; give --bars",
) -> tuple[GateResult, ...]:
    """Check every condition of a promotion.

    Args:
        champion: the present one; None if the model has no champion, then any version passes the gate `losses`.
        challenger: the version to promote.
        comparison: of both; None without bars to compare them on.
        ledger: the record of the challenger's shadow forecasts; None without a ledger.
        overridden: names of the gates that may fail.
        uncompared: why there is no comparison.

    Raises:
        ConfigurationError: an overridden gate does not exist.
    """
    _check_names(overridden)
    gates = (
        _check_losses(champion, comparison, uncompared),
        _check_symbols(champion, challenger),
        _check_audit(challenger),
        _check_shadow(challenger, ledger),
        _check_replay(challenger, ledger),
    )
    return tuple(replace(gate, overridden=not gate.passed and gate.name in overridden) for gate in gates)


def _check_names(overridden: Collection[str]) -> None:
    unknown = sorted(set(overridden).difference(GATES))
    if unknown:
        raise ConfigurationError(f"unknown gate {format_names(unknown)}; choose from {', '.join(GATES)}")


def _check_losses(
    champion: ComparedVersion | None, comparison: VersionComparison | None, uncompared: str
) -> GateResult:
    if champion is None:
        return GateResult(name="losses", passed=True, need="better than the champion", have="the model has no champion")
    if comparison is None:
        return GateResult(name="losses", passed=False, need="a comparison with the champion", have=uncompared)
    passed = comparison.decision is True
    return GateResult(name="losses", passed=passed, need=comparison.need, have=comparison.sentence)


def _check_symbols(champion: ComparedVersion | None, challenger: ComparedVersion) -> GateResult:
    missing = [] if champion is None else sorted(champion.symbols - challenger.symbols)
    have = f"it lacks {format_names(missing)}" if missing else f"it learnt from {len(challenger.symbols)} symbols"
    return GateResult(name="symbols", passed=not missing, need="every symbol that the champion learnt from", have=have)


def _check_audit(challenger: ComparedVersion) -> GateResult:
    need = "no leak in a recorded audit"
    try:
        record = read_audit(challenger.model_folder / str(challenger.version))
    except ArtifactError as error:
        return GateResult(name="audit", passed=False, need=need, have=error.message)
    if record is None:
        return GateResult(name="audit", passed=True, need=need, have="no audit is recorded")
    checks = (record.future, record.permutation)
    have = "; ".join(f"{check.name}: {check.verdict.value}" for check in checks)
    return GateResult(name="audit", passed=not record.has_leak, need=need, have=have)


def _check_shadow(challenger: ComparedVersion, ledger: Ledger | None) -> GateResult:
    need = f"forecasts of {SHADOW_SESSIONS} sessions in the ledger, made before their outcomes"
    if ledger is None:
        return GateResult(name="shadow", passed=False, need=need, have="no ledger is given (--ledger)")
    weights_hash = challenger.trained_model.model.identity.weights_hash
    shadow = list_shadow_sessions(ledger, ModelVersion(challenger.model_folder.name, challenger.version), weights_hash)
    have = f"{len(shadow)} sessions" + (f", {format_date(shadow[0])} to {format_date(shadow[-1])}" if shadow else "")
    return GateResult(name="shadow", passed=len(shadow) >= SHADOW_SESSIONS, need=need, have=have)


def list_shadow_sessions(ledger: Ledger, version: ModelVersion, weights_hash: str) -> list[int]:
    """The sessions, yyyymmdd, that a version with these weights forecast before the outcomes were known.

    Forecasts from bars outside the ledger do not count, because it cannot tell when they were made.
    """
    query = (
        "select distinct as_of from forecast where model = ? and version = ? and weights_hash = ? and role <> 'client' "
        "and is_prospective = 1 and bars_batch > 0 order by as_of"
    )
    return [int(row["as_of"]) for row in ledger.query(query, (*version, weights_hash))]


def _check_replay(challenger: ComparedVersion, ledger: Ledger | None) -> GateResult:
    need = "its recorded forecasts are equal when they are replayed"
    if ledger is None:
        return GateResult(name="replay", passed=False, need=need, have="no ledger is given (--ledger)")
    condition = "kind = ? and model = ? and version = ?"
    events = ledger.records(LedgerEvent, condition, (REPLAY, challenger.model_folder.name, challenger.version))
    ours = challenger.trained_model.model.identity.weights_hash
    details = [event.detail for event in events if event.detail.get("weights_hash", ours) == ours]
    if not details:
        return GateResult(name="replay", passed=False, need=need, have="no replay is recorded")
    equal, different, failed = (details[-1].get(name, 0) for name in ("equal", "different", "failed"))
    have = f"{equal} equal and {different} different in the last replay"
    have += f"; {failed} could not be computed" if failed else ""
    return GateResult(name="replay", passed=bool(equal) and different == failed == 0, need=need, have=have)


def list_failed(gates: Sequence[GateResult]) -> list[str]:
    """Names of the gates that prevent a promotion."""
    return [gate.name for gate in gates if not (gate.passed or gate.overridden)]


def promote_if_passed(
    challenger: ComparedVersion,
    champion: ComparedVersion | None,
    *,
    compare: Callable[[], VersionComparison] | None,
    reason: str,
    ledger: Ledger | None,
    overridden: Collection[str] = (),
    uncompared: str = "none; give --bars",
) -> PromotionResult:
    """Check the gates of a version, and make it the champion if they are passed or overridden.

    `compare` compares both; None without bars, for the reason `uncompared`. See `check_gates` for the others.

    Raises:
        ConfigurationError, LedgerError: as `check_gates` and `promote`.
    """
    _check_names(overridden)  # before the comparison, which takes long
    if champion is not None and champion.version == challenger.version:
        promote(challenger, champion, (), reason=reason, ledger=ledger)
        return PromotionResult(promoted=True, gates=(), champion=champion.version)
    comparison = None
    if champion is not None and compare is not None:
        try:
            comparison = compare()
        except InSampleError as error:
            uncompared = error.message
    gates = check_gates(
        champion, challenger, comparison=comparison, ledger=ledger, overridden=overridden, uncompared=uncompared
    )
    if list_failed(gates):
        return PromotionResult(promoted=False, gates=gates, champion=0 if champion is None else champion.version)
    promote(challenger, champion, gates, reason=reason, ledger=ledger)
    return PromotionResult(promoted=True, gates=gates, champion=challenger.version)


def promote(
    challenger: ComparedVersion,
    champion: ComparedVersion | None,
    gates: tuple[GateResult, ...],
    *,
    reason: str,
    ledger: Ledger | None = None,
) -> AliasMove | None:
    """Make a version the champion.

    After a process was killed halfway, call it again: it completes the promotion.

    Returns:
        The move; None if it is already the champion.

    Raises:
        ConfigurationError: a gate is neither passed nor overridden, the champion has changed since the comparison, or
            the folder cannot be written.
        LedgerError: the ledger cannot be written.
    """
    failed = list_failed(gates)
    if failed:
        raise ConfigurationError(
            f"{challenger.reference} has not passed the gate {format_names(failed)}; it is not promoted"
        )
    expected = None if champion is None else champion.version
    move = promote_version(challenger.model_folder, challenger.version, expected=expected, reason=reason, gates=gates)
    if ledger is not None:
        record_moves(challenger.model_folder, ledger)
    return move


def roll_back_champion(
    model_folder: Path, *, reason: str, ledger: Ledger | None = None, expected: int | None = None
) -> AliasMove:
    """Make the previous champion the champion again.

    Raises:
        ConfigurationError: the champion is not the `expected` one, no previous champion is recorded, or its version is
            missing.
        LedgerError: the ledger cannot be written.
    """
    move = roll_back(model_folder, reason=reason, expected=expected)
    if ledger is not None:
        record_moves(model_folder, ledger)
    return move


def record_moves(model_folder: Path, ledger: Ledger) -> int:
    """Record every move of a model's champion as an event, and return the number of new ones.

    Each move is recorded only once. Earlier moves that were made without the ledger are recorded too.
    """
    moves, name = _read_champion_moves(model_folder), model_folder.name
    return ledger.append(
        LedgerEvent(
            kind="champion",
            model=name,
            version=move.version,
            reason=f"{move.kind.value}: {move.reason}",
            detail={
                "move": move.kind.value,
                "previous": move.previous,
                "at": move.at,
                "gates": [asdict(gate) for gate in move.gates],
            },
            key=f"champion {name} {move.previous} to {move.version} at {move.at}, move {k}",
        )
        for k, move in enumerate(moves)
    )


def list_champions(model_folder: Path) -> frozenset[int]:
    """The versions that are or were the champion of a model."""
    return frozenset(move.version for move in _read_champion_moves(model_folder))


def _read_champion_moves(model_folder: Path) -> list[AliasMove]:
    return [move for move in read_moves(model_folder, read_aliases(model_folder)) if move.alias == CHAMPION]
