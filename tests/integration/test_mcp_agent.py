"""A scripted agent behind `harness mcp` turns most planted bugs right, by following the feedback."""

from __future__ import annotations

import asyncio

import pytest

from tests.benchmarks.bench_mcp_agent import CALLS, WANTED, right, run


@pytest.mark.xdist_group("mcp")
def test_most_planted_bugs_are_turned_right_in_three_calls() -> None:
    rows, _ = asyncio.run(run(0))
    assert len(rows) == 20
    assert [bug.name for bug, course in rows if course.statuses[0] == "passed"] == []
    assert all(len(course.statuses) <= CALLS for _, course in rows)
    assert right(rows) >= WANTED, [(bug.name, course.statuses) for bug, course in rows if not course.right]
