"""Find, read and hash problems and solutions.

Trusted side. Files are read as text: no code of a problem or solution is imported or executed here. Formats:
`problems.py` (problem folders, `workloads.yaml`), `solutions.py` (solution folders, `author.yaml`).
"""

from harness.catalog.problems import Catalog, CatalogError, UnreadableProblem, load_problems
from harness.catalog.requirements import unmet_need
from harness.catalog.solutions import bounded_source, find_authors, find_solutions, solution_path

__all__ = [
    "Catalog",
    "CatalogError",
    "UnreadableProblem",
    "bounded_source",
    "find_authors",
    "find_solutions",
    "load_problems",
    "solution_path",
    "unmet_need",
]
