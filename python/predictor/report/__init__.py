"""The HTML report: one file that explains a forecast and the model behind it, and that loads nothing from anywhere.

Texts and tables need no JavaScript; the charts do. Every number that is shown rounded stands in full in its `<data>`.
"""

from predictor.report.content import ReportContent
from predictor.report.fan import forecast_chart
from predictor.report.page import render_report, write_report

__all__ = ["ReportContent", "forecast_chart", "render_report", "write_report"]
