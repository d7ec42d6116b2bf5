"""Finds, loads and hashes problems and solutions. The exports are below; the formats are described in
`harness.catalog.problems` (problem folders, `workloads.yaml`), `harness.catalog.solutions` (solution folders,
`author.yaml`) and `harness.catalog.requirements` (packages and weights that a problem asks for).

Trusted side. Files are read as text: nothing of a problem or a solution is imported or executed here.
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
