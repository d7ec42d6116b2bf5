"""Render results for people and programs: terminal, CSV, HTML, figures, feedback.

Trusted side. Renderers are pure functions: records in, text or rich renderables out; `cli` prints them. Texts of a
submission (names, reasons, output) go through `report.format`, which escapes them.
"""
