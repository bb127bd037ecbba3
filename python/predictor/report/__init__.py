"""HTML reports as self-contained files, and the report of a forecast and its model.

Other packages build their pages with `PageBuilder`, from templates that extend `report/base.html.j2`. Only the charts
need JavaScript. Rounded numbers carry their full value in `<data>`.
"""

from predictor.report.forecast import NO_PAST, PastForecasts, ReportContent, draw_forecast, select_past_forecasts
from predictor.report.page import (
    PICTURE_SUFFIXES,
    render_report,
    write_forecast_chart,
    write_forecast_picture,
    write_reason_chart,
    write_reason_picture,
    write_report,
)
from predictor.report.paths import describe_origin, write_paths_page
from predictor.report.templates import (
    FILE,
    NOTHING,
    PageBuilder,
    PageFrame,
    ReportTable,
    TableCell,
    TableRow,
    check_picture,
    check_report,
    make_number_cell,
)

__all__ = [
    "FILE",
    "NOTHING",
    "NO_PAST",
    "PICTURE_SUFFIXES",
    "PageBuilder",
    "PageFrame",
    "PastForecasts",
    "ReportContent",
    "ReportTable",
    "TableCell",
    "TableRow",
    "check_picture",
    "check_report",
    "describe_origin",
    "draw_forecast",
    "make_number_cell",
    "render_report",
    "select_past_forecasts",
    "write_forecast_chart",
    "write_forecast_picture",
    "write_paths_page",
    "write_reason_chart",
    "write_reason_picture",
    "write_report",
]
