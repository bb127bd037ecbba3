"""Hyper-parameter search on the selection split, with refits of the best trial from several seeds."""

from trainers.stock.tuning.search import Search, SearchResult, StudyStorage, search

__all__ = ["Search", "SearchResult", "StudyStorage", "search"]
