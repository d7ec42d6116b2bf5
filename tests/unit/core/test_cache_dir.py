"""Old preparations go, the ones in use stay, and concurrent processes don't take each other's away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core import cache_dir

HOLDER = """
import sys
from pathlib import Path
from harness.core.cache_dir import hold
assert hold(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def folders(root: Path, kind: str, count: int) -> list[Path]:
    """`count` folders, the first used longest ago."""
    made = []
    for number in range(count):
        folder = root / f"{kind}-{number}"
        folder.mkdir(parents=True)
        (folder / "content").write_text("x")
        os.utime(folder, (number, number))
        made.append(folder)
    return made


def test_the_last_used_of_each_kind_stay(tmp_path: Path) -> None:
    headers, libraries = folders(tmp_path, "headers", 5), folders(tmp_path, "libraries", 2)
    (tmp_path / "entries").mkdir()
    assert sorted(cache_dir.remove_old(tmp_path, ("headers", "libraries"), kept=3)) == ["headers-0", "headers-1"]
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "entries", *headers[2:], *libraries])


def test_what_is_held_here_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_dir, "_held", {})
    made = folders(tmp_path, "headers", 3)
    assert cache_dir.hold(made[0])
    assert cache_dir.remove_old(tmp_path, ("headers",), kept=2) == ["headers-1"], "holding is using"
    assert cache_dir.remove_old(tmp_path, ("headers",), kept=0) == ["headers-2"]
    assert made[0].exists()


def test_what_another_process_holds_stays_until_it_ends(tmp_path: Path) -> None:
    folder = folders(tmp_path, "headers", 1)[0]
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        assert cache_dir.remove_old(tmp_path, ("headers",), kept=0) == []
        holder.stdin.close()
        assert holder.wait() == 0
    assert cache_dir.remove_old(tmp_path, ("headers",), kept=0) == ["headers-0"]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_dir, "_held", {})
    folder = folders(tmp_path, "headers", 1)[0]
    assert cache_dir.hold(folder)
    (folder / "in-use").unlink()
    assert not cache_dir.hold(folder)
    assert not cache_dir.hold(tmp_path / "headers-9")
