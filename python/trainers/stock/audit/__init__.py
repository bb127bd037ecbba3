"""Audits: checks whether a model's skill is only a leak, a lag, a cost or luck."""

from trainers.stock.audit.audit import AuditBudget, audit

__all__ = ["AuditBudget", "audit"]
