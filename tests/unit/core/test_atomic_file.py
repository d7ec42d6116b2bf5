"""Files written whole, and trees that sandboxed processes, being other users, can read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.atomic_file import open_to_others


def modes(root: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.lstat().st_mode) for path in root.rglob("*") if not path.is_symlink()}


def test_a_tree_is_opened_to_others_and_to_nobodys_pen(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "closed" / "inner").mkdir(parents=True)
    outside.touch(mode=0o600)
    for name, mode in {"text": 0o600, "closed/script": 0o700, "closed/inner/deep": 0o640, "open": 0o664}.items():
        (root / name).touch()
        (root / name).chmod(mode)
    (root / "closed" / "link").symlink_to(outside)
    for folder in (root, root / "closed", root / "closed" / "inner"):
        folder.chmod(0o700)
    open_to_others(root)
    assert stat.S_IMODE(root.stat().st_mode) == 0o755
    assert modes(root) == {
        "closed": 0o755, "inner": 0o755, "text": 0o644, "script": 0o744, "deep": 0o644, "open": 0o664,
    }  # fmt: skip
    assert stat.S_IMODE(outside.stat().st_mode) == 0o600, "a link leads out of the tree"


def test_what_goes_while_a_tree_is_opened_is_passed_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler beside gives what it made its name, say."""
    walk = os.walk

    def others_at_work(root: Path) -> Iterator[tuple[str, list[str], list[str]]]:
        for folder, folders, names in walk(root):
            (Path(folder) / "draft").rename(Path(folder) / "made")
            yield folder, folders, names

    for name in ("draft", "text"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o600)
    monkeypatch.setattr(os, "walk", others_at_work)
    open_to_others(tmp_path)
    assert modes(tmp_path)["text"] == 0o644
