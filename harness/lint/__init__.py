"""Lint for problems: each must prove that it tells right answers from wrong ones, before anybody is judged by it."""

from harness.lint.degenerate import Soundness, taken_for_right
from harness.lint.findings import RULES, Check, ProblemReport, Verdict
from harness.lint.ledger import LedgerError, append_to_ledger, key_of, read_ledger
from harness.lint.linting import lint_problem, too_large_for_host

__all__ = [
    "RULES",
    "Check",
    "LedgerError",
    "ProblemReport",
    "Soundness",
    "Verdict",
    "append_to_ledger",
    "key_of",
    "lint_problem",
    "read_ledger",
    "taken_for_right",
    "too_large_for_host",
]
