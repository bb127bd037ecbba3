"""Ensembles: trained artifacts put together, calibrated as one, and judged beside each of them."""

from trainers.stock.ensembles.join import JoinedEnsemble, join

__all__ = ["JoinedEnsemble", "join"]
