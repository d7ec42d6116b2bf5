"""A report as one page: leaderboards, figures, every solution, and what changed between two runs.

Outside layer; trusted side. Pure: records, sources and texts in, HTML out. Everything is in the one file; it loads
nothing, and a content security policy forbids it to. Whatever a submission wrote is escaped, by autoescape throughout.
"""

from harness.report.html.page import Item, render
from harness.report.html.svg import inline, strip

__all__ = ["Item", "inline", "render", "strip"]
