"""Ensembles: trained artifacts that are combined, calibrated and scored as one model."""

from trainers.stock.ensembles.ensemble import JoinedEnsemble, join

__all__ = ["JoinedEnsemble", "join"]
