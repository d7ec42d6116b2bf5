"""`python -m tests.mutation`: mutants are judged, found again in the file of results, and shown on the page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.mutation.judging import rows_of
from tests.support.paths import ROOT

FILE = "solutions/examples/naive/level1/89_thread_per_row.py"


def command(*options: str) -> str:
    arguments = [sys.executable, "-m", "tests.mutation", *options]
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_mutants_are_judged_once_and_the_page_counts_them(tmp_path: Path) -> None:
    out, shown = tmp_path / "mutants.jsonl", tmp_path / "page.md"
    asked = ("--only", FILE, "--count", "3", "--seed", "2", "--out", str(out))
    assert "3 mutants to judge, 0 judged before" in command(*asked)
    sound, *mutants = rows_of(out)
    assert (sound["operator"], sound["status"], sound["file"]) == ("sound", "passed", FILE)
    assert len({row["id"] for row in mutants}) == 3
    assert any(row["stage"] in ("value", "bounds") for row in mutants)
    assert "0 mutants to judge, 4 judged before" in command(*asked)
    assert len(rows_of(out)) == 4
    command("--out", str(out), "--page", str(shown))
    assert "3 mutants of 1 sound solutions, judged on host" in shown.read_text()
