"""HTML reports, each one self-contained file; here the one of a forecast and the model behind it.

Other packages' pages use the same parts: `PageBuilder` fills their templates, which extend `report/base.html.j2`.

Texts and tables need no JavaScript; the charts do. Rounded numbers have their full value in `<data>`.
"""

from predictor.report.forecast import ReportContent, forecast_chart
from predictor.report.page import render_report, write_forecast_chart, write_reason_chart, write_report
from predictor.report.templates import NOTHING, PageBuilder, ReportTable, TableCell, TableRow, check_report, number_cell

__all__ = [
    "NOTHING",
    "PageBuilder",
    "ReportContent",
    "ReportTable",
    "TableCell",
    "TableRow",
    "check_report",
    "forecast_chart",
    "number_cell",
    "render_report",
    "write_forecast_chart",
    "write_reason_chart",
    "write_report",
]
