"""Check whether a problem rejects wrong answers, before it scores solutions."""

from harness.referee.soundness.degenerate import Soundness, taken_for_right
from harness.referee.soundness.ledger import LedgerError, append_to_ledger, key_of, read_ledger
from harness.referee.soundness.linting import lint_problem, too_large_for_host
from harness.referee.soundness.problem_report import RULES, ProblemReport, RuleCheck, RuleVerdict

__all__ = [
    "RULES",
    "LedgerError",
    "ProblemReport",
    "RuleCheck",
    "RuleVerdict",
    "Soundness",
    "append_to_ledger",
    "key_of",
    "lint_problem",
    "read_ledger",
    "taken_for_right",
    "too_large_for_host",
]
