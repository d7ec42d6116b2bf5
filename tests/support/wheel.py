"""Build the wheel of this checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def build_wheel(folder: Path) -> Path:
    """Build it below `folder`, from a copy of what it is made of, without downloads."""
    tree = folder / "tree"
    for name in ("harness", "problems", "solutions/examples"):
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    subprocess.run([*PIP, "wheel", tree, "--no-deps", "--no-build-isolation", "-w", folder], check=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    return wheel
