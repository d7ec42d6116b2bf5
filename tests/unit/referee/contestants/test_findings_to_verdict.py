"""Findings of the host device as verdicts: which one counts, and that nothing a contestant reports can break it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.status import Status
from harness.referee.contestants.findings import STATUS_OF_KIND, failure_of_reports

RACE = {
    "kind": "data_race",
    "kernel": "product",
    "message": "read of memory that another thread writes, without synchronisation between the two",
    "access": "read of 4 bytes",
    "other_access": "write",
    "space": "shared",
    "array": "tile",
    "subscript": "[0][3]",
    "line": 51,
    "other_line": 36,
}


def test_a_race_is_named_by_kernel_lines_and_array() -> None:
    failure = failure_of_reports([RACE])
    assert failure is not None
    assert failure.status is Status.data_race
    assert failure.reason == (
        "data race on shared `tile[0][3]` in kernel `product`: read on line 51, "
        "write by another thread on line 36 without synchronisation"
    )


def test_a_race_of_unknown_accesses_is_named_by_kernel_line_and_message() -> None:
    failure = failure_of_reports([{key: value for key, value in RACE.items() if key != "other_access"}])
    assert failure is not None
    assert failure.reason == (
        "product, line 51: read of memory that another thread writes, without synchronisation between the two "
        "(shared tile[0][3]; the other access is on line 36)"
    )


def test_the_gravest_finding_is_the_reason() -> None:
    failure = failure_of_reports([RACE, {"kind": "leak"}, {"kind": "memory_error", "kernel": "copy", "line": 3}])
    assert failure is not None
    assert failure.status is Status.memory_error
    assert failure.reason == "copy, line 3: memory error"


@pytest.mark.parametrize("reports", [[], [{"kind": "leak"}], [{"kind": None}], [{}], [{"kind": ["data_race"]}]])
def test_what_decides_nothing_is_no_failure(reports: list[dict[str, Any]]) -> None:
    assert failure_of_reports(reports) is None


VALUES = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text(max_size=3), max_size=3)


@given(st.lists(st.dictionaries(st.sampled_from(sorted({*RACE, "kind"})), VALUES), max_size=4))
def test_any_report_is_read_defensively(reports: list[dict[str, Any]]) -> None:
    for report in reports:
        report.setdefault("kind", "data_race")
    failure = failure_of_reports(reports)
    assert failure is None or failure.status in set(STATUS_OF_KIND.values())
