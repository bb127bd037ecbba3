"""Consumers of the loop's reports, which write or show each report and pass it on.

for report in JsonlLog(path)(RichProgress(console)(run.epochs(train, max_epochs=50))):
...
"""

from trainers.progress.report_logs import JsonLines, JsonlLog, TensorBoardLog, as_json
from trainers.progress.screen import (
    ConsumerChain,
    NotebookProgress,
    PlainProgress,
    ReportCallback,
    ReportConsumer,
    RichProgress,
    StepProgress,
    is_cell,
    no_progress,
    progress_for,
    progress_on,
    show_finished,
)

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
