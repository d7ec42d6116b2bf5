"""Which of several records on the same thing is the latest.

Pure; imports the vocabulary only. When a record finished is its own word, and runs come from other machines too: one
that says a time still to come, or none, is older than all others, so that it takes nobody's place by saying so.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from harness.core.record import Record

CLOCKS_DIFFER = timedelta(days=1)
"""How far ahead of this machine's clock another's may be, which wrote a record."""

_NEVER = datetime.min.replace(tzinfo=UTC)


def finished(record: Record) -> datetime | None:
    """When it says it finished; None where that is no time that has been. A time without a zone is in UTC."""
    try:
        said = datetime.fromisoformat(record.finished_at)
    except ValueError:
        return None
    said = said if said.tzinfo is not None else said.replace(tzinfo=UTC)
    return said if said <= datetime.now(UTC) + CLOCKS_DIFFER else None


def recency(record: Record) -> datetime:
    """What to order records by, the latest last."""
    return finished(record) or _NEVER
