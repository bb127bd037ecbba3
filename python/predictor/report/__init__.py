"""HTML reports: one file each, that loads nothing from anywhere. Here the one of a forecast and the model behind it.

Other packages' pages stand on the same parts: `page_template` finds theirs beside base.html.j2 and parts.html.j2.

Texts and tables need no JavaScript; the charts do. Every number that is shown rounded stands in full in its `<data>`.
"""

from predictor.report.content import ReportContent
from predictor.report.drawing import Drawing
from predictor.report.fan import forecast_chart
from predictor.report.grid import Cell, Grid, Line
from predictor.report.page import render_report, write_report
from predictor.report.templates import page_template
from predictor.report.writing import check_report

__all__ = [
    "Cell",
    "Drawing",
    "Grid",
    "Line",
    "ReportContent",
    "check_report",
    "forecast_chart",
    "page_template",
    "render_report",
    "write_report",
]
