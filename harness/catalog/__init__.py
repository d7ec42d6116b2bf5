"""Find, read and hash problems and solutions.

Trusted side. Files are read as text: no code of a problem or solution is imported or executed here. Formats:
`problems.py` (problem folders, `workloads.yaml`), `solutions.py` (solution folders, `author.yaml`).
"""

from harness.catalog.problems import Catalog, CatalogError, UnreadableProblem, load_problems
from harness.catalog.requirements import unmet_need
from harness.catalog.solutions import find_authors, find_solutions, label_of, solution_path
from harness.catalog.source_files import RejectedFile, bounded_source

__all__ = [
    "Catalog",
    "CatalogError",
    "RejectedFile",
    "UnreadableProblem",
    "bounded_source",
    "find_authors",
    "find_solutions",
    "label_of",
    "load_problems",
    "solution_path",
    "unmet_need",
]
