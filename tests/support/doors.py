"""Run the contract tests of the doors, each in an environment of its own: `python -m tests.support.doors [DOOR]...`.

The packages of the doors exclude each other. An environment sees the packages of the Python that runs this (torch, for
example); its own come first.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import time

from tests.support.paths import ROOT

DOORS = {
    "trl": ["trl>=1.16"],
    "verl": ["verl>=0.9"],
    "inspect": ["inspect-ai>=0.3.285"],
    "openenv": ["openenv>=0.10"],
    "verifiers": ["verifiers>=0.4,<0.5", "uv"],
}
"""Door -> the packages that its test needs."""


def tested(door: str) -> int:
    """Make the environment of a door, run its contract test, and return the exit code."""
    folder = ROOT / "build" / "doors" / door
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        (own,) = folder.glob("lib/python*/site-packages")
        (own / "parent.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    install = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-q", *DOORS[door]]
    if code := subprocess.run(install, cwd=ROOT, check=False).returncode:
        return code
    test = [str(python), "-m", "pytest", "-q", "-rs", "tests/integration/test_doors.py", "-k", f"test_{door}"]
    began = time.monotonic()
    code = subprocess.run(test, cwd=ROOT, check=False).returncode
    sys.stderr.write(f"door {door}: exit code {code} after {time.monotonic() - began:.0f} s\n")
    return code


if __name__ == "__main__":
    wanted = sys.argv[1:] or list(DOORS)
    if unknown := [name for name in wanted if name not in DOORS]:
        sys.exit(f"no door {', '.join(unknown)}; the doors are {', '.join(DOORS)}")
    sys.exit(max(tested(name) for name in wanted))
