"""One text per record for whoever wrote the solution, a model or a person: what failed and where, or how good it is.

Outside layer; trusted side. Pure: a record (and, where they are at hand, its source and log) in, text out. Imports the
vocabulary, `scoring`, `stats` and `report.format`. Written for an author who must not learn the answer: of an expected
value only two digits are told, at the places where the output is wrong, and never a seed.
"""

from harness.report.feedback.text import feedback

__all__ = ["feedback"]
