"""The file that keeps findings of lint: complete lines stay, a cut one goes."""

from __future__ import annotations

from pathlib import Path

from harness.referee.soundness import ProblemReport
from harness.referee.soundness.ledger import append_to_ledger


def report(problem: str) -> ProblemReport:
    return ProblemReport(problem=problem, workload="small", device="cpu", checks=())


def test_what_an_interrupted_writer_left_is_cut_off_and_whole_lines_stay(tmp_path: Path) -> None:
    path = tmp_path / "lint.jsonl"
    for name in ("level1/1", "level1/2"):
        append_to_ledger(path, report(name))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"problem": "level1/3", "work')
    append_to_ledger(path, report("level1/4"))
    lines = path.read_bytes().splitlines(keepends=True)
    assert b"".join(lines[:2]) == whole
    assert len(lines) == 3
    assert b'"level1/4"' in lines[2]
