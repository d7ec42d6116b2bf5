"""The same commands over the same inputs give the same bytes: standard output, errors, exit codes and written files.

`UPDATE_GOLDEN=1 pytest tests/integration/test_golden.py` rewrites `tests/golden/commands/` after a text was changed on
purpose. Read the difference before you commit it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.cli import main
from harness.results.manifest import MANIFEST
from tests.support.paths import ROOT, TESTS

GOLDEN = TESTS / "golden" / "commands"
UPDATE = bool(os.environ.get("UPDATE_GOLDEN"))

RUN = "results/h200-examples"
LATER = "results/h200-examples-later"
HELP = """
eval serve mcp extract screen show leaderboard profile compare report plot verify replay merge ci baseline doctor
warmup timeline problems new prompt generate
"""
COMMANDS: Mapping[str, str] = {
    "leaderboard": f"leaderboard {RUN}",
    "leaderboard_json": f"leaderboard {RUN} --json",
    "leaderboard_csv": f"leaderboard {RUN} --csv TMP/leaderboard.csv",
    "show": f"show {RUN}",
    "show_passed": f"show {RUN} 17_transpose_first",
    "show_passed_all": f"show {RUN} 17_transpose_first --all",
    "show_selected": f"show {RUN} -k LEVEL1/1 --status failed --feedback",
    "show_failed_json": f"show {RUN} missing_barrier --json",
    "show_feedback": f"show {RUN} --feedback",
    "compare": f"compare {RUN} {LATER}",
    "compare_json": f"compare {RUN} {LATER} --json",
    "report": f"report {RUN} --out TMP/report.html",
    "merge": f"merge {RUN} {LATER} --out TMP/merged",
    "timeline": f"timeline {RUN}",
    "timeline_json": f"timeline {RUN} --json",
    "export_kernelbench": f"export kernelbench {RUN} --out TMP/exported",
    "screen": "screen solutions/examples",
    "screen_json": "screen solutions/examples --json",
    "problems_list_json": "problems list level3 --json",
    "problems_show": "problems show level1/16",
    "help": "--help",
    **{f"help_{name}": f"{name} --help" for name in HELP.split()},
    "wrong_command": "evaluate",
    "wrong_option": "eval solutions/examples --seed 3",
    "wrong_value": "eval solutions/examples --device tpu",
    "no_solutions": "eval no/such/folder",
    "no_problem": "problems show level9/1",
    "no_run": "show results/no-such-run",
    "no_solution": f"show {RUN} no_such_solution",
    "nothing_to_compare": f"compare {RUN} no/such/run",
    "no_transcripts": "extract no/such/folder --out TMP/extracted",
}


def normalised(text: str, folder: Path) -> str:
    """Output without what differs from call to call: the test's folder, this clone's, the version, times of day."""
    text = text.replace(str(folder), "TMP").replace(str(ROOT), "ROOT").replace(harness.__version__, "VERSION")
    return re.sub(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00| UTC)?", "TIME", text)


def answer(name: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """Everything that a command says and writes, as one text."""
    code = main([word.replace("TMP", str(folder)) for word in COMMANDS[name].split()])
    out, err = capfd.readouterr()
    parts = [f"$ harness {COMMANDS[name]}", f"exit code {code}", "--- stdout", out, "--- stderr", err]
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != MANIFEST:  # digests of files with times of day
            parts += [f"--- {path.relative_to(folder)}", path.read_text(encoding="utf-8")]
    return normalised("\n".join(parts), folder)


def expect(name: str, text: str) -> None:
    """Compare with the golden text, or write it where that was asked for."""
    path = GOLDEN / f"{name}.txt"
    if UPDATE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_command_gives_the_golden_bytes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "120")
    expect(name, answer(name, tmp_path, capfd))


VOLATILE = re.compile(r"(_s|_at|_bytes|digest|samples|key)$")
DROPPED = frozenset(
    {"environment", "timing", "build", "notes", "refresh", "calls", "launches", "prepared_ahead", "seeds"}
)
REPORT = ("kind", "kernel", "array", "space", "line", "other_line")
"""Of a finding on the CPU. Which of a block's threads are named differs from run to run."""


def stable(value: Any) -> Any:
    """A record without times, sizes, digests and what describes the machine."""
    if isinstance(value, dict) and "other_thread" in value:
        return {name: value[name] for name in REPORT}
    if isinstance(value, dict):
        return {name: stable(item) for name, item in value.items() if not VOLATILE.search(name) and name not in DROPPED}
    if isinstance(value, list):
        return sorted({json.dumps(stable(item), sort_keys=True) for item in value})
    return "a number" if isinstance(value, float) else value


SOLUTIONS = (
    "naive/level1/1_thread_per_element.py",
    "optimised/level1/17_transpose_first.py",
    "broken/level1/1_missing_barrier.py",
    "broken/level1/16_does_not_compile.py",
)


def test_an_evaluation_gives_the_golden_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "120")
    for name in SOLUTIONS:
        place = tmp_path / "solutions" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "solutions" / "examples" / name, place)
    call = f"eval {tmp_path}/solutions --device host --out {tmp_path}/results --run-id golden"
    code = main(call.split())
    capfd.readouterr()
    lines = (tmp_path / "results" / "golden" / "records.jsonl").read_text(encoding="utf-8").splitlines()
    records = sorted((json.loads(line) for line in lines), key=lambda record: record["solution"])
    text = "".join(json.dumps(stable(record), indent=1, sort_keys=True) + "\n" for record in records)
    # Which of several racing accesses is found first differs from run to run.
    text = re.sub(r"`\w+(\[\d+\])+`(.*) line \d+(.*) line \d+ ", r"ELEMENT\2 line N\3 line N ", text)
    expect("eval_records", normalised(f"exit code {code}\n{text}", tmp_path))
