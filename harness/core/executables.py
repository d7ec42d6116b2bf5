"""Find compilers, run short commands, read the state of the git checkout.

Trusted side.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

_COMMAND_TIMEOUT_S = 30.0
_TRIES = 3
_PAUSE_S = 0.5
"""Timeout, number of tries and pause between them for commands such as `nvcc --version`. Several tries, so that a busy
machine does not appear to have no compiler."""

_SHORT = (errno.EAGAIN, errno.ENOMEM)
"""Values of `OSError.errno` for a temporary shortage of memory or processes: the program exists, so try again."""


def find_nvcc() -> Path | None:
    """Find the nvcc that torch's extension builder uses.

    The order is CUDA_HOME or CUDA_PATH, then PATH, then /usr/local/cuda.
    """
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            return _executable(Path(home) / "bin" / "nvcc")
    if found := shutil.which("nvcc"):
        return Path(found)
    return _executable(Path("/usr/local/cuda/bin/nvcc"))


def find_gxx() -> Path | None:
    """Find the C++ compiler.

    It is the one in CXX (without a leading `ccache`), or `g++` or `c++` on PATH.
    """
    named = os.environ.get("CXX", "")
    launcher, _, behind = named.partition(" ")
    if behind.strip() and Path(launcher).name == "ccache":
        named = behind.strip()
    names: Sequence[str] = [named] if named else ["g++", "c++"]
    return next((Path(found) for name in names if (found := shutil.which(name))), None)


def _executable(path: Path) -> Path | None:
    return path if path.is_file() and os.access(path, os.X_OK) else None


def nvcc_version(path: Path | None) -> str | None:
    """Return nvcc's version (`13.0.88`), or None if nvcc is missing or does not run."""
    found = re.search(r"\bV(\d+\.\d+\.\d+)", output_of([str(path), "--version"]) or "") if path else None
    return found[1] if found else None


def gxx_version(path: Path | None) -> str | None:
    """Return the C++ compiler's version (`12.2.0`), or None if it does not run."""
    return (output_of([str(path), "-dumpfullversion", "-dumpversion"]) or "").strip() or None if path else None


def output_of(command: Sequence[str], *, cwd: Path | None = None) -> str | None:
    """Return a short command's standard output, or None if it fails or hangs."""
    said, _ = _answer_of(command, cwd=cwd)
    return said


def _answer_of(command: Sequence[str], *, cwd: Path | None = None) -> tuple[str | None, str]:
    """Return a command's standard output and "", or None and the reason.

    The reason is its first line on stderr, if it has one.
    """
    for again in range(_TRIES - 1, -1, -1):
        try:
            done = subprocess.run(
                command,
                cwd=cwd,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=_COMMAND_TIMEOUT_S,
                check=False,
                encoding="utf-8",
                errors="replace",
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError as error:
            if error.errno in _SHORT and again:
                time.sleep(_PAUSE_S)
                continue
            return None, error.strerror or str(error)
        except subprocess.TimeoutExpired:
            if again:
                continue
            return None, f"no answer within {_COMMAND_TIMEOUT_S:.0f} s, {_TRIES} times"
        if done.returncode < 0 and again:
            time.sleep(_PAUSE_S)
            continue
        if done.returncode:
            how = f"ended by signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
            said = (done.stderr.strip().splitlines() or [how])[0]
            return None, re.sub(r"'/[^']*'|(?<!\S)/\S*", "...", said)  # records contain it: no paths of this machine
        return done.stdout, ""
    raise AssertionError("the last try returns")


def git_state(folder: Path) -> tuple[str | None, bool | None, str | None]:
    """Return the state of the git checkout that contains `folder`, a package's folder.

    Returns:
        The revision, whether tracked files differ from it, and None; or None, None and the reason.
    """
    if shutil.which("git") is None:
        return None, None, "git is not installed"
    # If the harness is installed below another project's checkout, that project's revision is not the harness's.
    held, why = _answer_of(["git", "ls-files", "--error-unmatch", "model.py"], cwd=folder)
    if held is None:
        return None, None, f"not run from a git checkout of the harness ({why})"
    revision, why = _answer_of(["git", "rev-parse", "HEAD"], cwd=folder)
    if revision is None:
        return None, None, f"git can't read the checkout ({why})"
    changes, why = _answer_of(["git", "status", "--porcelain", "--untracked-files=no"], cwd=folder)
    if changes is None:
        return None, None, f"git can't read the checkout ({why})"
    return revision.strip(), bool(changes.strip()), None
