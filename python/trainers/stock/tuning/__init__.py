"""Search for hyper-parameters: trials on the selection part, and the best one refitted from several seeds."""

from trainers.stock.tuning.search import Search, SearchResult, StudyStorage, search

__all__ = ["Search", "SearchResult", "StudyStorage", "search"]
