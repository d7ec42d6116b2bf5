"""Select solutions by their name and by their status: `-k` and `--status`.

Pure functions.
"""

from __future__ import annotations

from harness.core.status import FAILED, Status


def is_named(pattern: str | None, solution: str, problem: str) -> bool:
    """Return whether `pattern` is in the name or problem, in any case, or None."""
    wanted = (pattern or "").casefold()
    return wanted in solution.casefold() or wanted in problem.casefold()


def has_status(wanted: str | None, status: Status) -> bool:
    """Return whether `--status` selects a status; None selects all."""
    return wanted in (None, status.value) or (wanted == FAILED and status is not Status.passed)
