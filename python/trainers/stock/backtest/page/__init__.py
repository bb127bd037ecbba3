"""A backtest as a page: one HTML file that loads nothing from anywhere."""

from trainers.stock.backtest.page.page import render_backtest, write_backtest

__all__ = ["render_backtest", "write_backtest"]
