"""Consumers of the loop's reports: each takes reports, does its part, and passes them on.

for report in JsonlLog(path)(RichProgress(console)(run.epochs(train, max_epochs=50))):
...
"""

from trainers.progress.consumer import Chain, Consumer, PlainProgress
from trainers.progress.json_log import JsonLines, JsonlLog, as_json
from trainers.progress.screen import NotebookProgress, RichProgress, is_cell, progress_for
from trainers.progress.steps import Stepwise, unwatched, watched_on
from trainers.progress.tensorboard import TensorBoardLog

__all__ = [
    "Chain",
    "Consumer",
    "JsonLines",
    "JsonlLog",
    "NotebookProgress",
    "PlainProgress",
    "RichProgress",
    "Stepwise",
    "TensorBoardLog",
    "as_json",
    "is_cell",
    "progress_for",
    "unwatched",
    "watched_on",
]
