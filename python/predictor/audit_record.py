"""The audit of a model: what was tried to show that its skill is a leak, a lag, a cost or luck, and what came of it.

A JSON file beside the artifact's folder, `NAME.audit.json`, so that the folder stays as it was hashed. It holds the
SHA-256 of the manifest that it was made for: beside another artifact it is refused.
"""

import hashlib
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol, Self

from predictor import canonical
from predictor.canonical import Json, Record
from predictor.errors import ArtifactError, shown_date
from predictor.replacement import replace_file

FORMAT: Final = "quantra-audit"
FORMAT_VERSION: Final = 1
SUFFIX: Final = ".audit.json"
_MANIFEST: Final = "manifest.json"


class AuditVerdict(StrEnum):
    """What one check came to."""

    PASS = "pass"  # noqa: S105 - not that kind of pass
    """What was tried to refute the skill has failed to."""
    FAIL = "fail"
    """The skill is refuted, or a leak was found."""
    UNDECIDED = "undecided"
    """The data cannot tell."""


class Check(Protocol):
    """One check of an audit."""

    @property
    def name(self) -> str:
        """What is checked, in words."""
        ...

    @property
    def verdict(self) -> AuditVerdict:
        """What it came to."""
        ...

    @property
    def sentence(self) -> str:
        """The numbers in words."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FutureCheck:
    """Bars after a session replaced by noise, or deleted: nothing at that session may change."""

    verdict: AuditVerdict
    sessions: tuple[int, ...]
    """yyyymmdd, at which it was tried."""
    stages: tuple[str, ...]
    """What was compared bit for bit, such as observed features, scale and forecast."""
    changed: tuple[str, ...]
    """Stages that changed; empty where none did."""
    first_changed: int | None
    """The earliest session at which one did."""
    deletion_gap: float | None
    """Largest change of a forecast where the bars are deleted instead, relative to the largest forecast of the day;
    None where it cannot be compared, because another set of stocks is forecast."""

    @property
    def name(self) -> str:
        """What is checked."""
        return "future bars replaced by noise"

    @property
    def sentence(self) -> str:
        """The numbers in words."""
        tried = f"at {_count(len(self.sessions), 'session')}"
        if not self.changed:
            gap = "unknown" if self.deletion_gap is None else f"{self.deletion_gap:.1e}"
            return f"nothing changed, bit for bit, {tried} ({', '.join(self.stages)}); bars deleted: gap {gap}"
        when = "" if self.first_changed is None else f", first at {shown_date(self.first_changed)}"
        return f"a leak: {', '.join(self.changed)} changed with bars of later sessions{when}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PermutationCheck:
    """Labels shuffled over days and the model trained on them: its skill on true days must vanish."""

    verdict: AuditVerdict
    epochs: int
    """Of each training, at most."""
    skill: float
    """Of the model itself: how much smaller its pinball loss is than that of quantiles without a model, as a share."""
    permuted: tuple[float, ...]
    """The same of each model that was trained on shuffled labels."""
    error: float
    """Standard error of the mean of `permuted`, by days."""

    @property
    def name(self) -> str:
        """What is checked."""
        return "labels permuted and retrained"

    @property
    def mean(self) -> float:
        """Mean skill of the models trained on shuffled labels."""
        return sum(self.permuted) / len(self.permuted)

    @property
    def p_value(self) -> float:
        """Share of models at least as good as the model itself, itself among them; never below 1 / (n + 1)."""
        return (1 + sum(found >= self.skill for found in self.permuted)) / (1 + len(self.permuted))

    @property
    def sentence(self) -> str:
        """The numbers in words."""
        trained = f"{_count(len(self.permuted), 'training')} of at most {_count(self.epochs, 'epoch')}"
        return (
            f"skill {100 * self.mean:+.2f} % ± {100 * self.error:.2f} % after {trained} on shuffled labels, "
            f"{100 * self.skill:+.2f} % on true ones"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LagRow:
    """The same forecasts against outcomes that begin `lag` closes after them."""

    lag: int
    skill: float
    """Pinball loss against quantiles without a model, as a share."""
    skill_error: float
    ic: float | None
    """Mean daily rank correlation of median forecasts with returns across stocks; None with fewer than three."""
    ic_error: float | None
    sharpe: float | None
    """A year's, before costs, of the strategy traded at that close; None where it never moves."""
    sharpe_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LagCheck:
    """Whether the skill is still there when a trader can act."""

    verdict: AuditVerdict
    horizon: int
    """Sessions, of IC and strategy."""
    rows: tuple[LagRow, ...]

    @property
    def name(self) -> str:
        """What is checked."""
        return "skill by lag"

    @property
    def sentence(self) -> str:
        """The numbers in words."""
        return "; ".join(_lag_words(row) for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostCheck:
    """What trading may cost before nothing is left."""

    verdict: AuditVerdict
    strategy: str
    charged_bps: float
    """Basis points on every unit traded that the Sharpe ratio is after."""
    break_even_bps: float | None
    """At which the mean return is zero; below 0 where it loses without any; None where nothing is traded."""
    sharpe: float | None
    """A year's, after costs."""
    sharpe_error: float | None

    @property
    def name(self) -> str:
        """What is checked."""
        return "cost at which it breaks even"

    @property
    def sentence(self) -> str:
        """The numbers in words."""
        if self.break_even_bps is None:
            return f"strategy {self.strategy} never trades"
        after = _pair(self.sharpe, self.sharpe_error)
        return (
            f"strategy {self.strategy} breaks even at {self.break_even_bps:.1f} bp; Sharpe {after} at "
            f"{self.charged_bps:g} bp"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsCheck:
    """The Sharpe ratio beside what the best of so many skill-less trials would show (Bailey & Lopez de Prado 2014)."""

    verdict: AuditVerdict
    trials: int
    counted_by: str
    """Who counted them."""
    sessions: int
    sharpe: float | None
    """A year's, after costs."""
    expected_best: float
    """A year's Sharpe ratio to be expected of the best of the trials if none had skill."""
    probabilistic: float | None
    """Probability that the true Sharpe ratio is above 0."""
    deflated: float | None
    """Probability that it is above `expected_best`."""

    @property
    def name(self) -> str:
        """What is checked."""
        return "trials counted, Sharpe deflated"

    @property
    def sentence(self) -> str:
        """The numbers in words."""
        tried = f"{_count(self.trials, 'trial')} ({self.counted_by})"
        if self.sharpe is None or self.deflated is None or self.probabilistic is None:
            return f"{tried}; the strategy never moves, so there is no Sharpe ratio"
        return (
            f"{tried}: Sharpe {self.sharpe:+.2f} where the luckiest of them would show {self.expected_best:.2f}; it is "
            f"above that with probability {self.deflated:.2f}, above 0 with {self.probabilistic:.2f}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """An audit, whole."""

    digest: str
    """SHA-256 of the artifact's manifest; of a recipe that of its settings and features."""
    told: str
    """What was audited, in words."""
    bars: str
    """SHA-256 of the bars that it was audited on."""
    first_session: int
    """Of the decisions that skill was measured on, yyyymmdd."""
    last_session: int
    future: FutureCheck
    permutation: PermutationCheck
    lags: LagCheck
    costs: CostCheck
    trials: TrialsCheck
    notes: tuple[str, ...]

    @property
    def checks(self) -> tuple[Check, ...]:
        """All checks, in the order in which they are told."""
        return (self.future, self.permutation, self.lags, self.costs, self.trials)

    @property
    def leak(self) -> bool:
        """Whether a leak was found: by the future, or by shuffled labels."""
        return AuditVerdict.FAIL in (self.future.verdict, self.permutation.verdict)

    @property
    def verdict(self) -> AuditVerdict:
        """Fail if any check fails, pass if all pass."""
        verdicts = {check.verdict for check in self.checks}
        if AuditVerdict.FAIL in verdicts:
            return AuditVerdict.FAIL
        return AuditVerdict.PASS if verdicts == {AuditVerdict.PASS} else AuditVerdict.UNDECIDED

    def to_json(self) -> dict[str, Json]:
        """What `from_bytes` reads, as values."""
        facts: dict[str, Json] = asdict(self)
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **facts}

    def to_bytes(self) -> bytes:
        """Canonical JSON."""
        return canonical.to_bytes(self.to_json())

    @classmethod
    def from_bytes(cls, data: bytes, source: str) -> Self:
        """Read it back, strictly; `source` names the file in errors.

        Raises:
            ArtifactError: naming the key that is missing, unknown or wrong.
        """
        record = Record.from_bytes(data, source)
        found = record.text("format"), record.integer("format_version")
        if found != (FORMAT, FORMAT_VERSION):
            raise record.refusal("format", f"is {found[0]!r} version {found[1]}; audit the model again")
        read = cls(
            digest=record.text("digest"),
            told=record.text("told"),
            bars=record.text("bars"),
            first_session=record.integer("first_session"),
            last_session=record.integer("last_session"),
            future=_future(record.record("future")),
            permutation=_permutation(record.record("permutation")),
            lags=_lags(record.record("lags")),
            costs=_costs(record.record("costs")),
            trials=_trials(record.record("trials")),
            notes=record.texts("notes"),
        )
        record.end()
        return read


def audit_path(path: Path) -> Path:
    """Where the audit of an artifact's folder, or of a recipe's file, stands: beside it."""
    return path.with_name(path.name + SUFFIX)


def write_audit(path: Path, record: AuditRecord) -> None:
    """Write the audit beside an artifact or a recipe, in place of an older one."""
    replace_file(audit_path(path), record.to_bytes())


def read_audit(folder: Path) -> AuditRecord | None:
    """The audit beside an artifact's folder; None where there is none.

    Raises:
        ArtifactError: it is no audit, or it is one of another artifact.
    """
    path = audit_path(folder)
    if not path.is_file():
        return None
    record = AuditRecord.from_bytes(path.read_bytes(), path.name)
    digest = hashlib.sha256((folder / _MANIFEST).read_bytes()).hexdigest()
    if record.digest != digest:
        raise ArtifactError.of(
            path.name, f"is of another artifact, {record.digest[:12]}, not of {digest[:12]}; audit this one again"
        )
    return record


# --- reading


def _verdict(record: Record) -> AuditVerdict:
    text = record.text("verdict")
    if text not in list(AuditVerdict):
        raise record.refusal("verdict", f"is {text!r}, expected one of {[v.value for v in AuditVerdict]}")
    return AuditVerdict(text)


def _maybe(record: Record, key: str) -> float | None:
    return None if record.json(key) is None else record.number(key)


def _future(record: Record) -> FutureCheck:
    read = FutureCheck(
        verdict=_verdict(record),
        sessions=record.integers("sessions"),
        stages=record.texts("stages"),
        changed=record.texts("changed"),
        first_changed=None if record.json("first_changed") is None else record.integer("first_changed"),
        deletion_gap=_maybe(record, "deletion_gap"),
    )
    record.end()
    return read


def _permutation(record: Record) -> PermutationCheck:
    read = PermutationCheck(
        verdict=_verdict(record),
        epochs=record.integer("epochs"),
        skill=record.number("skill"),
        permuted=record.numbers("permuted"),
        error=record.number("error"),
    )
    record.end()
    return read


def _lags(record: Record) -> LagCheck:
    rows = tuple(map(_lag_row, record.records("rows")))
    read = LagCheck(verdict=_verdict(record), horizon=record.integer("horizon"), rows=rows)
    record.end()
    return read


def _lag_row(record: Record) -> LagRow:
    read = LagRow(
        lag=record.integer("lag"),
        skill=record.number("skill"),
        skill_error=record.number("skill_error"),
        ic=_maybe(record, "ic"),
        ic_error=_maybe(record, "ic_error"),
        sharpe=_maybe(record, "sharpe"),
        sharpe_error=_maybe(record, "sharpe_error"),
    )
    record.end()
    return read


def _costs(record: Record) -> CostCheck:
    read = CostCheck(
        verdict=_verdict(record),
        strategy=record.text("strategy"),
        charged_bps=record.number("charged_bps"),
        break_even_bps=_maybe(record, "break_even_bps"),
        sharpe=_maybe(record, "sharpe"),
        sharpe_error=_maybe(record, "sharpe_error"),
    )
    record.end()
    return read


def _trials(record: Record) -> TrialsCheck:
    read = TrialsCheck(
        verdict=_verdict(record),
        trials=record.integer("trials"),
        counted_by=record.text("counted_by"),
        sessions=record.integer("sessions"),
        sharpe=_maybe(record, "sharpe"),
        expected_best=record.number("expected_best"),
        probabilistic=_maybe(record, "probabilistic"),
        deflated=_maybe(record, "deflated"),
    )
    record.end()
    return read


# --- words


def _lag_words(row: LagRow) -> str:
    words = f"lag {row.lag}: skill {100 * row.skill:+.2f} % ± {100 * row.skill_error:.2f} %"
    if row.ic is not None:
        words += f", IC {_pair(row.ic, row.ic_error, 3)}"
    return words if row.sharpe is None else f"{words}, Sharpe {_pair(row.sharpe, row.sharpe_error)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _pair(value: float | None, error: float | None, digits: int = 2) -> str:
    if value is None or error is None:
        return "unknown"
    return f"{value:+.{digits}f} ± {error:.{digits}f}"
