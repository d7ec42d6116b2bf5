"""Write a feedback text for the author of a solution: the defect with its evidence, or the speed and its limits.

Trusted side. Pure functions: a record, and its source and log if available, in; text out. The author, a model or a
person, must not learn the answer: the text gives two digits of an expected value, at wrong places only, and no seed.
"""

from harness.report.feedback.text import feedback

__all__ = ["feedback"]
