"""An audit, whole, its canonical JSON, and the file that holds it.

It lies beside the artifact's folder, so that the folder stays as it was hashed.
"""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from predictor import canonical
from predictor.audit_record.checks import (
    AuditCheck,
    AuditVerdict,
    CostCheck,
    FutureCheck,
    LagCheck,
    PermutationCheck,
    TrialsCheck,
)
from predictor.canonical import Json, Record, read_as
from predictor.errors import ArtifactError, shown_date
from predictor.replacement import replace_file

FORMAT: Final = "quantra-audit"
FORMAT_VERSION: Final = 1
FIRST_YARDSTICK: Final = "volatility-scaled quantiles, calibrated"
"""What all audits measured skill against before their records named it."""
_EARLIER: Final = {"yardstick": FIRST_YARDSTICK}

SUFFIX: Final = ".audit.json"
_MANIFEST: Final = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """An audit, whole."""

    digest: str
    """SHA-256 of the artifact's manifest; for a recipe, of its settings and features."""
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
    warnings: tuple[str, ...] = ()
    """What makes the bars or the files beside them doubtful; empty if unknown."""

    @property
    def checks(self) -> tuple[AuditCheck, ...]:
        """All checks, in the order in which they are shown."""
        return (self.future, self.permutation, self.lags, self.costs, self.trials)

    @property
    def measured(self) -> str:
        """What is called skill here, in a sentence: against which yardstick, and on which days."""
        days = f"{shown_date(self.first_session)} to {shown_date(self.last_session)}"
        return (
            f"Skill in this audit is how far the pinball loss lies below that of one yardstick, "
            f"{self.permutation.yardstick}, on decision days {days}. A training, an evaluation and an ensemble tell it "
            "against the best of all their baselines, each on days of its own, so those numbers are others"
        )

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
        stated = record.text("format"), record.integer("format_version")
        if stated != (FORMAT, FORMAT_VERSION):
            raise record.refusal("format", f"is {stated[0]!r} version {stated[1]}; audit the model again")
        read = cls(
            digest=record.text("digest"),
            told=record.text("told"),
            bars=record.text("bars"),
            first_session=record.integer("first_session"),
            last_session=record.integer("last_session"),
            future=read_as(record.record("future"), FutureCheck, strict=True),
            permutation=_permutation(record.record("permutation")),
            lags=read_as(record.record("lags"), LagCheck, absent=_EARLIER, strict=True),
            costs=read_as(record.record("costs"), CostCheck, strict=True),
            trials=read_as(record.record("trials"), TrialsCheck, strict=True),
            notes=record.texts("notes"),
            warnings=record.texts("warnings") if record.has("warnings") else (),
        )
        record.end()
        return read


def _permutation(record: Record) -> PermutationCheck:
    read = read_as(record, PermutationCheck, absent=_EARLIER, strict=True)
    if not read.permuted:
        raise record.refusal(
            "permuted", "is [], but must hold the skill of at least one training; audit the model again"
        )
    return read


def audit_path(path: Path) -> Path:
    """Where the audit of an artifact's folder, or of a recipe's file, is kept: beside it."""
    return path.with_name(path.name + SUFFIX)


def write_audit(path: Path, record: AuditRecord) -> None:
    """Write the audit beside an artifact or a recipe; it replaces an older one."""
    replace_file(audit_path(path), record.to_bytes())


def read_audit(folder: Path) -> AuditRecord | None:
    """The audit beside an artifact's folder; None where there is none.

    Raises:
        ArtifactError: it is not an audit, or it belongs to another artifact.
    """
    path = audit_path(folder)
    if not path.is_file():
        return None
    record = AuditRecord.from_bytes(path.read_bytes(), path.name)
    digest = hashlib.sha256((folder / _MANIFEST).read_bytes()).hexdigest()
    if record.digest != digest:
        raise ArtifactError.of(
            path.name, f"belongs to another artifact, {record.digest[:12]}, not to {digest[:12]}; audit this one again"
        )
    return record
