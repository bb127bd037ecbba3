"""The audit of a model: what was tried to show that its skill is a leak, a lag, a cost or luck, and what came of it.

A JSON file next to the artifact's folder, `NAME.audit.json`. It holds the SHA-256 of the manifest that it was made for;
next to another artifact it is refused.
"""

from predictor.audit_record.record import (
    AuditCheck,
    AuditRecord,
    AuditVerdict,
    CostCheck,
    FutureCheck,
    LagCheck,
    LagRow,
    PermutationCheck,
    TrialsCheck,
    audit_path,
    read_audit,
    write_audit,
)

__all__ = [
    "AuditCheck",
    "AuditRecord",
    "AuditVerdict",
    "CostCheck",
    "FutureCheck",
    "LagCheck",
    "LagRow",
    "PermutationCheck",
    "TrialsCheck",
    "audit_path",
    "read_audit",
    "write_audit",
]
