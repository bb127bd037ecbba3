"""An evaluation as a page: one HTML file that loads nothing from anywhere."""

from trainers.stock.evaluation.page.page import render_evaluation, write_evaluation

__all__ = ["render_evaluation", "write_evaluation"]
