"""Ensembles: trained artifacts combined, calibrated as one, and judged against each of them."""

from trainers.stock.ensembles.ensemble import JoinedEnsemble, join

__all__ = ["JoinedEnsemble", "join"]
