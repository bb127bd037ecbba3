"""The record of a model's audit: the checks that tried to refute its skill, and their results.

It is stored in `NAME.audit.json` next to the artifact's folder, with the SHA-256 of the artifact's manifest. A record
of another artifact is rejected.
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
    locate_audit,
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
    "locate_audit",
    "read_audit",
    "write_audit",
]
