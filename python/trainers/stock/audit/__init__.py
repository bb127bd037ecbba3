"""Audits: what was tried to show that a model's skill is a leak, a lag, a cost or luck."""

from trainers.stock.audit.run import Depth, audit

__all__ = ["Depth", "audit"]
