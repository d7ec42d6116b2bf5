"""Render results for people and programs: terminal, CSV, HTML, figures, feedback.

Trusted side. Renderers are pure functions: records in, text or rich renderables out. `cli` prints them.
"""
