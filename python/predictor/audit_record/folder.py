"""Where an audit stands: in a file beside the artifact's folder, so that the folder stays as it was hashed."""

import hashlib
from pathlib import Path
from typing import Final

from predictor.audit_record.record import AuditRecord
from predictor.errors import ArtifactError
from predictor.replacement import replace_file

SUFFIX: Final = ".audit.json"
_MANIFEST: Final = "manifest.json"


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
