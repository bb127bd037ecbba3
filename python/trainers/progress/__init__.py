"""Consumers of the loop's reports, which write or show each report and pass it on.

for report in JsonlLog(path)(RichProgress(console)(run.epochs(train, max_epochs=50))):
...
"""

from trainers.progress.consumer import ConsumerChain, PlainProgress, ReportCallback, ReportConsumer
from trainers.progress.json_log import JsonLines, JsonlLog, as_json
from trainers.progress.screen import (
    NotebookProgress,
    RichProgress,
    StepProgress,
    is_cell,
    no_progress,
    progress_for,
    progress_on,
    show_finished,
)
from trainers.progress.tensorboard import TensorBoardLog

__all__ = [
    "ConsumerChain",
    "JsonLines",
    "JsonlLog",
    "NotebookProgress",
    "PlainProgress",
    "ReportCallback",
    "ReportConsumer",
    "RichProgress",
    "StepProgress",
    "TensorBoardLog",
    "as_json",
    "is_cell",
    "no_progress",
    "progress_for",
    "progress_on",
    "show_finished",
]
