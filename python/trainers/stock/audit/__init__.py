"""Audits: checks whether a model's skill is only a leak, a lag, a cost or luck."""

from trainers.stock.audit.run import AuditBudget, audit

__all__ = ["AuditBudget", "audit"]
