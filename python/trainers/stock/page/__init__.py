"""The local page of `quantra ui`: bars, forecasts, reasons, models and the ledger. Needs the extras of `demo`."""

from trainers.stock.page.routes import load_page

__all__ = ["load_page"]
