"""What a dead contestant left behind, read: all that is whole, nothing that is not, whatever stands there."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.status import Failure, Status
from harness.protocol.fields import MAX_REPORTS
from harness.referee.contestants.crash_recorder import BYTES, CrashEntry, CrashRecorder, CrashRecording, parsed
from harness.referee.contestants.failures import explained

LAUNCHES_AT, END_AT, LOG_AT = 1024, 3072, 4096
RACE = {"kind": "data_race", "kernel": "relu", "message": "a race", "thread": [1, 0, 0]}


def page(
    log: bytes = b"", launches: tuple[bytes, bytes] = (b"", b""), numbers: tuple[int, int] = (0, 0), end: bytes = b""
) -> bytes:
    held = bytearray(BYTES)
    struct.pack_into("<QQQ", held, 0, len(log), *numbers)
    for at, text in ((LAUNCHES_AT, launches[0]), (LAUNCHES_AT + 1024, launches[1]), (END_AT, end), (LOG_AT, log)):
        text = text[: BYTES - at]
        held[at : at + len(text)] = text
    return bytes(held)


def line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


@pytest.fixture
def recorder() -> Iterator[CrashRecorder]:
    held = CrashRecorder()
    yield held
    held.close()


def test_memory_that_nobody_wrote_says_nothing(recorder: CrashRecorder) -> None:
    assert recorder.read() == CrashRecording()


def test_what_another_mapping_wrote_is_read(recorder: CrashRecorder) -> None:
    with mmap.mmap(recorder.fd, BYTES) as theirs:
        theirs[:] = page(line(RACE))
    (entry,) = recorder.read().findings
    assert entry == CrashEntry(fields=RACE)


def test_whoever_has_the_memory_can_not_cut_it_off(recorder: CrashRecorder) -> None:
    for bytes_wanted in (0, 2 * BYTES):
        with pytest.raises(PermissionError):
            os.ftruncate(recorder.fd, bytes_wanted)
    with pytest.raises(PermissionError):
        fcntl.fcntl(recorder.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


def test_closing_twice_does_no_harm() -> None:
    held = CrashRecorder()
    held.close()
    held.close()
    with pytest.raises(OSError, match="Bad file"):
        held.read()


def test_sites_become_lines_where_they_are_known() -> None:
    site, other = ("/cache/module.so", 4660), ("/cache/module.so", 9)
    found = parsed(
        page(line({**RACE, "site": list(site), "other_site": list(other)}) + line({**RACE, "site": list(site)}))
    )
    assert found.sites() == (site, other)
    placed = found.findings[0].located({site: ("cuda.cu", 7), other: None})
    assert placed == {**RACE, "file": "cuda.cu", "line": 7}


def test_a_place_in_a_header_has_the_line_of_the_launch() -> None:
    known, other = ("/m.so", 16), ("/m.so", 32)
    places = {known: ("cuda.cu", 7), other: None}
    row = {**RACE, "launch_line": 40}
    found = parsed(page(line({**row, "site": list(known)}) + line({**row, "site": list(other)}) + line(row)))
    lines = [(held.get("line"), "launch_line" in held) for held in (entry.located(places) for entry in found.findings)]
    assert lines == [(7, False), (40, False), (40, False)]


def test_a_line_that_is_told_stays() -> None:
    site = ("/cache/module.so", 4660)
    (entry,) = parsed(page(line({**RACE, "line": 3, "site": list(site)}))).findings
    assert entry.located({site: ("cuda.cu", 7)})["line"] == 3


def test_the_later_launch_is_told() -> None:
    launches = line({"kernel": "a"}), line({"kernel": "b"})
    for planned_call, running, name in ((1, 1, "b"), (2, 0, "a"), (2**64 - 1, 2**63, "b")):
        found = parsed(page(launches=launches, numbers=(planned_call, running)))
        assert found.launch == CrashEntry(fields={"kernel": name})
        assert found.running is (running == 1)


def test_a_signal_that_was_not_the_last_is_left_out() -> None:
    found = parsed(page(line(RACE), end=b'{"signal":11,"kernel":"relu"}'))
    assert found.end == CrashEntry(fields={"signal": 11, "kernel": "relu"})
    assert found.ended_by(11) == found
    for number in (6, None):
        assert found.ended_by(number) == CrashRecording(findings=(CrashEntry(fields=RACE),))


def test_what_was_cut_off_is_left_out_and_the_rest_is_read() -> None:
    held = line(RACE) + line(RACE)[:20] + b"\0" * 30 + b"\n" + line({**RACE, "kernel": "other"})
    assert [entry.fields["kernel"] for entry in parsed(page(held)).findings] == ["relu", "other"]


def test_no_more_is_kept_than_a_reply_may_have() -> None:
    held = b"".join(line({"kind": "data_race", "message": str(n)}) for n in range(2 * MAX_REPORTS))
    assert len(parsed(page(held)).findings) == MAX_REPORTS


@pytest.mark.parametrize(
    "row",
    [
        [RACE],
        {**RACE, "site": "module.so"},
        {**RACE, "site": ["module.so", -1]},
        {**RACE, "site": ["module.so", True]},
        {**RACE, "site": ["m" * 5000, 1]},
        {**RACE, "thread": {"deep": "object"}},
        {**RACE, "index": float("nan")},
        {str(n): n for n in range(100)},
        "text",
        None,
    ],
)
def test_what_is_no_finding_is_left_out(row: Any) -> None:
    assert parsed(page(line(row))) == CrashRecording()
    assert parsed(page(end=line(row).strip(), launches=(line(row).strip(), b""))) == CrashRecording()


def test_deep_nesting_is_left_out() -> None:
    assert parsed(page(b"[" * 50_000)) == CrashRecording()
    assert parsed(page(b'{"a":' * 10_000 + b"\n" + line(RACE))).findings == (CrashEntry(fields=RACE),)


ROWS = st.dictionaries(
    st.sampled_from(["kind", "kernel", "line", "site", "signal", "running", "message", "odd"]),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers() | st.text()),
).map(line)


@given(
    log=st.binary(max_size=300) | st.lists(ROWS).map(b"".join),
    end=st.binary(max_size=1024) | ROWS,
    numbers=st.tuples(*[st.integers(0, 2**64 - 1)] * 3),
)
def test_anything_is_read_and_convicts_at_most(log: bytes, end: bytes, numbers: tuple[int, ...]) -> None:
    held = bytearray(page(log, (end, end), end=end))
    struct.pack_into("<QQQ", held, 0, *numbers)
    found = parsed(bytes(held))
    assert len(found.findings) <= MAX_REPORTS
    reports = [entry.located({}) for entry in found.findings]
    failure = Failure(status=Status.timeout, reason="no answer", evidence={})
    assert explained(failure, reports).status is not Status.not_emulated
