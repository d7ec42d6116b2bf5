"""Render a report as one HTML page: leaderboards, figures, solutions, changes.

Trusted side. Pure functions. The page is one file that loads nothing, and its content security policy forbids loading.
Jinja's autoescape escapes all text of submissions.
"""

from harness.report.html.page import Item, render
from harness.report.html.svg import inline, strip

__all__ = ["Item", "inline", "render", "strip"]
