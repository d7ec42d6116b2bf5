"""`harness` in processes that need not import torch: each is forked from one process that has.

Run as a program, it is that process. It imports what the commands about problems need, also sympy and dynamo, which
torch imports late. For each line of JSON on its standard input it forks, and its child becomes `python -m harness`. It
answers with the child's process id, and, once the child has ended, with its exit code.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.paths import ROOT


class WarmCommand:
    """Starts commands, one at a time.

    Args:
        folder: For their output.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.support.warm_command"],
            cwd=ROOT,
            # If Python buffers nothing, C buffers nothing either: a test needs C's buffer.
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> WarmCommand:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._parent.communicate()

    def start(self, *arguments: str, cwd: Path) -> int:
        """Start `harness` in a session of its own, and return its process id."""
        assert self._parent.stdin is not None
        request = {"arguments": arguments, "cwd": str(cwd), "out": str(self._out), "err": str(self._err)}
        self._parent.stdin.write(f"{json.dumps(request)}\n")
        self._parent.stdin.flush()
        return self._answer()

    def wait(self) -> subprocess.CompletedProcess[str]:
        """Return the result of the started command after it has ended."""
        code = self._answer()
        return subprocess.CompletedProcess(("harness",), code, self._out.read_text(), self._err.read_text())

    def run(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Start `harness`, wait for its end, and return the result."""
        self.start(*arguments, cwd=cwd)
        return self.wait()

    @property
    def _out(self) -> Path:
        return self._folder / "out"

    @property
    def _err(self) -> Path:
        return self._folder / "err"

    def _answer(self) -> int:
        assert self._parent.stdout is not None
        return int(self._parent.stdout.readline())


def _become(arguments: Sequence[str], cwd: str, out: str, err: str) -> None:
    """Run `harness` in this process, and exit with its code."""
    os.setsid()
    os.chdir(cwd)
    for descriptor, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
        opened = os.open(path, flags if path == os.devnull else flags | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.argv = ["harness", *arguments]
    try:
        runpy.run_module("harness", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(end.code or 0))  # to free all of torch takes seconds


def main() -> None:
    """Fork for each request until there are no more."""
    import torch._dynamo  # noqa: F401

    from harness.cli import app, lint, problems  # noqa: F401
    from harness.referee import soundness  # noqa: F401
    from harness.referee.problem import roofline, shapes  # noqa: F401

    gc.freeze()  # a child's collections would copy all pages
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(**request)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
