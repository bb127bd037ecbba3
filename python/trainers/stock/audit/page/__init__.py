"""An audit as a page: one HTML file that loads nothing from anywhere."""

from trainers.stock.audit.page.page import render_audit, write_audit_page

__all__ = ["render_audit", "write_audit_page"]
