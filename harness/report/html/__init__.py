"""Render a report as one HTML page.

Trusted side. Pure functions. The page is one file that loads nothing, and its content security policy forbids loading.
Jinja's autoescape escapes all text of submissions.
"""

from harness.report.html.page import Changes, render
from harness.report.html.tables import Item

__all__ = ["Changes", "Item", "render"]
