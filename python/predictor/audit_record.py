"""The record of a model's audit: the checks that tried to refute its skill, and their results.

It is stored in `NAME.audit.json` next to the artifact's folder, with the SHA-256 of the artifact's manifest. A record
of another artifact is rejected.
"""

import hashlib
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from predictor import canonical
from predictor.canonical import Json, Record, read_as
from predictor.errors import ArtifactError, format_date
from predictor.replacement import replace_file


class AuditVerdict(StrEnum):
    """The result of one check."""

    PASS = "pass"  # noqa: S105 - not that kind of pass
    """The attempts to refute the skill failed."""
    FAIL = "fail"
    """The skill is refuted, or a leak was detected."""
    UNDECIDED = "undecided"
    """The data are insufficient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FutureCheck:
    """Replaces or deletes the bars after a session: nothing at that session may change."""

    verdict: AuditVerdict
    sessions: tuple[int, ...]
    """The tested sessions, yyyymmdd."""
    stages: tuple[str, ...]
    """The values that were compared bit for bit, such as observed features, scale and forecast."""
    changed: tuple[str, ...]
    """Stages that changed."""
    first_changed: int | None
    """The earliest session at which a stage changed."""
    deletion_gap: float | None
    """Largest change of a forecast when the bars are deleted instead, relative to the largest forecast of the day;
    None if the forecasts are of other stocks and cannot be compared."""

    @property
    def name(self) -> str:
        """The check's name."""
        return "future bars replaced by noise"

    @property
    def sentence(self) -> str:
        """The check's numbers in words."""
        extent = f"at {_count(len(self.sessions), 'session')}"
        if not self.changed:
            gap = "unknown" if self.deletion_gap is None else f"{self.deletion_gap:.1e}"
            return f"nothing changed, bit for bit, {extent} ({', '.join(self.stages)}); bars deleted: gap {gap}"
        when = "" if self.first_changed is None else f", first at {format_date(self.first_changed)}"
        return f"a leak: {', '.join(self.changed)} changed with bars of later sessions{when}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PermutationCheck:
    """Trains the model on labels shuffled over days: its skill on true days must vanish."""

    verdict: AuditVerdict
    epochs: int
    """Most epochs of each training."""
    yardstick: str
    """Name of the baseline that skill is measured against."""
    skill: float
    """Relative improvement of the audited model's pinball loss on the yardstick's."""
    permuted: tuple[float, ...]
    """The skill of each model trained on shuffled labels; at least one."""
    error: float
    """Standard error of the mean of `permuted`, by days."""

    @property
    def name(self) -> str:
        """The check's name."""
        return "labels permuted and retrained"

    @property
    def mean(self) -> float:
        """Mean skill of the models trained on shuffled labels."""
        return sum(self.permuted) / len(self.permuted)

    @property
    def p_value(self) -> float:
        """Share of models, the audited one included, that are at least as good as it; never below 1 / (n + 1)."""
        return (1 + sum(permuted >= self.skill for permuted in self.permuted)) / (1 + len(self.permuted))

    @property
    def sentence(self) -> str:
        """The check's numbers in words."""
        trained = f"{_count(len(self.permuted), 'training')} of at most {_count(self.epochs, 'epoch')}"
        return (
            f"against {self.yardstick}: skill {100 * self.mean:+.2f} % ± {100 * self.error:.2f} % after {trained} on "
            f"shuffled labels, {100 * self.skill:+.2f} % on true ones"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LagRow:
    """Scores of the forecasts against outcomes that begin `lag` closes later."""

    lag: int
    skill: float
    """Relative improvement of the pinball loss on the yardstick's."""
    skill_error: float
    ic: float | None
    """Mean daily rank correlation of median forecasts with returns across stocks; None with fewer than three."""
    ic_error: float | None
    sharpe: float | None
    """Annual Sharpe ratio before costs of the strategy traded at that close; None if its returns are constant."""
    sharpe_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LagCheck:
    """Delays the trade: the skill must persist until a trader can act."""

    verdict: AuditVerdict
    horizon: int
    """Horizon of IC and strategy, in sessions."""
    yardstick: str
    """Name of the baseline that skill is measured against."""
    rows: tuple[LagRow, ...]

    @property
    def name(self) -> str:
        """The check's name."""
        return "skill by lag"

    @property
    def sentence(self) -> str:
        """The check's numbers in words."""
        return f"against {self.yardstick}: {'; '.join(_describe_lag(row) for row in self.rows)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostCheck:
    """Computes the trading cost at which the strategy breaks even."""

    verdict: AuditVerdict
    strategy: str
    charged_bps: float
    """Cost in basis points per unit traded that the Sharpe ratio includes."""
    break_even_bps: float | None
    """Cost at which the mean return is zero; negative if it loses without costs; None if it never trades."""
    sharpe: float | None
    """Annual Sharpe ratio after costs."""
    sharpe_error: float | None

    @property
    def name(self) -> str:
        """The check's name."""
        return "break-even cost"

    @property
    def sentence(self) -> str:
        """The check's numbers in words."""
        if self.break_even_bps is None:
            return f"strategy {self.strategy} never trades"
        after = _format_with_error(self.sharpe, self.sharpe_error)
        return (
            f"strategy {self.strategy} breaks even at {self.break_even_bps:.1f} bp; Sharpe {after} at "
            f"{self.charged_bps:g} bp"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsCheck:
    """Compares the Sharpe ratio with that of the best of many trials without skill (Bailey & Lopez de Prado 2014)."""

    verdict: AuditVerdict
    trials: int
    counted_by: str
    """The source of the count."""
    sessions: int
    sharpe: float | None
    """Annual Sharpe ratio after costs."""
    expected_best: float
    """Expected annual Sharpe ratio of the best trial if none had skill."""
    probabilistic: float | None
    """Probability that the true Sharpe ratio is above 0."""
    deflated: float | None
    """Probability that it is above `expected_best`."""

    @property
    def name(self) -> str:
        """The check's name."""
        return "trials counted, Sharpe deflated"

    @property
    def sentence(self) -> str:
        """The check's numbers in words."""
        trials = f"{_count(self.trials, 'trial')} ({self.counted_by})"
        if self.sharpe is None or self.deflated is None or self.probabilistic is None:
            return f"{trials}; the strategy's return never varies, so it has no Sharpe ratio"
        return (
            f"{trials}: Sharpe {self.sharpe:+.2f}, of which the luckiest would show {self.expected_best:.2f}; it is "
            f"above that with probability {self.deflated:.2f}, above 0 with {self.probabilistic:.2f}"
        )


def _describe_lag(row: LagRow) -> str:
    words = f"lag {row.lag}: skill {100 * row.skill:+.2f} % ± {100 * row.skill_error:.2f} %"
    if row.ic is not None:
        words += f", IC {_format_with_error(row.ic, row.ic_error, 3)}"
    return words if row.sharpe is None else f"{words}, Sharpe {_format_with_error(row.sharpe, row.sharpe_error)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _format_with_error(value: float | None, error: float | None, digits: int = 2) -> str:
    if value is None or error is None:
        return "unknown"
    return f"{value:+.{digits}f} ± {error:.{digits}f}"


FORMAT: Final = "quantra-audit"

FORMAT_VERSION: Final = 1

SUFFIX: Final = ".audit.json"

_MANIFEST: Final = "manifest.json"


AuditCheck = FutureCheck | PermutationCheck | LagCheck | CostCheck | TrialsCheck
"""One check of an audit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """An audit of an artifact or a recipe."""

    digest: str
    """SHA-256 of the artifact's manifest, or of the recipe's settings and features."""
    subject: str
    """Description of the audited model."""
    bars: str
    """SHA-256 of the bars."""
    first_session: int
    """First decision day that skill was measured on, yyyymmdd."""
    last_session: int
    future: FutureCheck
    permutation: PermutationCheck
    lags: LagCheck
    costs: CostCheck
    trials: TrialsCheck
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    """Warnings about the bars and covariate files."""

    @property
    def checks(self) -> tuple[AuditCheck, ...]:
        """All checks, in display order."""
        return (self.future, self.permutation, self.lags, self.costs, self.trials)

    @property
    def measured(self) -> str:
        """A definition of skill for readers: the yardstick and the days."""
        days = f"{format_date(self.first_session)} to {format_date(self.last_session)}"
        return (
            f"Skill in this audit is the improvement of the pinball loss on one yardstick, "
            f"{self.permutation.yardstick}, on decision days {days}. Trainings, evaluations and ensembles measure it "
            "against the best of all their baselines and on other days, so their numbers differ"
        )

    @property
    def has_leak(self) -> bool:
        """Whether a leak was found, by future bars or by shuffled labels."""
        return AuditVerdict.FAIL in (self.future.verdict, self.permutation.verdict)

    @property
    def verdict(self) -> AuditVerdict:
        """Fail if any check fails, pass if all pass, else undecided."""
        verdicts = {check.verdict for check in self.checks}
        if AuditVerdict.FAIL in verdicts:
            return AuditVerdict.FAIL
        return AuditVerdict.PASS if verdicts == {AuditVerdict.PASS} else AuditVerdict.UNDECIDED

    def to_json(self) -> dict[str, Json]:
        """Convert to the JSON values that `from_bytes` reads."""
        facts: dict[str, Json] = asdict(self)
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **facts}

    def to_bytes(self) -> bytes:
        """Encode as canonical JSON."""
        return canonical.to_bytes(self.to_json())

    @classmethod
    def from_bytes(cls, data: bytes, source: str) -> Self:
        """Decode the result of `to_bytes`; `source` names the file in errors.

        Raises:
            ArtifactError: a key is missing, unknown or invalid; the message names it.
        """
        record = Record.from_bytes(data, source)
        stated_format = record.text("format"), record.integer("format_version")
        if stated_format != (FORMAT, FORMAT_VERSION):
            raise record.make_error(
                "format", f"is {stated_format[0]!r} version {stated_format[1]}; audit the model again"
            )
        audit = cls(
            digest=record.text("digest"),
            subject=record.text("subject"),
            bars=record.text("bars"),
            first_session=record.integer("first_session"),
            last_session=record.integer("last_session"),
            future=read_as(record.record("future"), FutureCheck, strict=True),
            permutation=_read_permutation(record.record("permutation")),
            lags=read_as(record.record("lags"), LagCheck, strict=True),
            costs=read_as(record.record("costs"), CostCheck, strict=True),
            trials=read_as(record.record("trials"), TrialsCheck, strict=True),
            notes=record.texts("notes"),
            warnings=record.texts("warnings"),
        )
        record.end()
        return audit


def _read_permutation(record: Record) -> PermutationCheck:
    permutation = read_as(record, PermutationCheck, strict=True)
    if not permutation.permuted:
        raise record.make_error(
            "permuted", "is [], but must hold the skill of at least one training; audit the model again"
        )
    return permutation


def locate_audit(path: Path) -> Path:
    """The path of the audit record for an artifact's folder or a recipe's file."""
    return path.with_name(path.name + SUFFIX)


def write_audit(path: Path, record: AuditRecord) -> None:
    """Write an audit record next to an artifact or a recipe, replacing an older one."""
    replace_file(locate_audit(path), record.to_bytes())


def read_audit(folder: Path) -> AuditRecord | None:
    """Read the audit record of an artifact's folder; None if it has no audit record.

    Raises:
        ArtifactError: the record is malformed or belongs to another artifact.
    """
    path = locate_audit(folder)
    if not path.is_file():
        return None
    record = AuditRecord.from_bytes(path.read_bytes(), path.name)
    digest = hashlib.sha256((folder / _MANIFEST).read_bytes()).hexdigest()
    if record.digest != digest:
        raise ArtifactError.of(
            path.name, f"belongs to another artifact, {record.digest[:12]}, not to {digest[:12]}; audit this one again"
        )
    return record
