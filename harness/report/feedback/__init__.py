"""Write a feedback text for a solution: the defect with evidence, or the speed.

Trusted side. Pure functions: a record, and its source and log if available, in; text out. The author, a model or a
person, must not learn the answer: the text gives two digits of an expected value, at wrong places only, and no seed.
"""

from harness.report.feedback.text import feedback

__all__ = ["feedback"]
