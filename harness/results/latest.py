"""Find the latest of several records of the same solution.

A record states its own finish time, and runs may come from other machines. A record with a future time, or none, counts
as older than all others, so it can't displace another record.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from harness.core.record import Record

CLOCKS_DIFFER = timedelta(days=1)
"""How far the clock of another machine may be ahead of this one's."""

_NEVER = datetime.min.replace(tzinfo=UTC)


def finished(record: Record) -> datetime | None:
    """Return the finish time (default zone: UTC); None if invalid or in the future."""
    try:
        said = datetime.fromisoformat(record.finished_at)
    except ValueError:
        return None
    said = said if said.tzinfo is not None else said.replace(tzinfo=UTC)
    return said if said <= datetime.now(UTC) + CLOCKS_DIFFER else None


def recency(record: Record) -> datetime:
    """Return a key that sorts records by finish time, the latest last."""
    return finished(record) or _NEVER
