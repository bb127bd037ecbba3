"""Consumers of the loop's reports: each takes reports, does its part, and hands them on.

for report in JsonlLog(path)(RichProgress(console)(run.epochs(train, max_epochs=50))):
...
"""

from trainers.progress.bar import RichProgress
from trainers.progress.consumer import Chain, Consumer
from trainers.progress.lines import JsonLines, as_json
from trainers.progress.log import JsonlLog
from trainers.progress.plain import PlainProgress
from trainers.progress.screen import progress_for
from trainers.progress.tensorboard import TensorBoardLog

__all__ = [
    "Chain",
    "Consumer",
    "JsonLines",
    "JsonlLog",
    "PlainProgress",
    "RichProgress",
    "TensorBoardLog",
    "as_json",
    "progress_for",
]
