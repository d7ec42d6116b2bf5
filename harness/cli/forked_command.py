"""Run a command in a forked child that a problem's code may end.

Trusted side. The commands about problems execute the code of problems in their own process. Such code can end the
process silently, with any exit code (`os._exit(0)`, a bad access in compiled code), and a gate would pass. The child
writes to shared memory which problem it executes, and that it finished. The parent forks before torch is imported or a
GPU is used, only waits, and exits with the child's code. The child keeps terminal, streams and process group, so Ctrl-C
reaches it.

A command that prints only at its end runs again without the problem that ended it: its list lacks only that problem.
"""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness.cli.output import NOT_FOUND, UNABLE, say

_ENDED, _CODE, _NAME = 0, 1, 2
"""Offsets in the shared memory: whether the child finished, its exit code, the problem that it executes."""
_BYTES = mmap.PAGESIZE

BY_OTHERS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE})
"""Signals that come from outside: no problem caused them."""

MOST_AGAIN = 20
"""Most times that a command runs again. Each run takes as long as all problems before the failing one."""

_shared: mmap.mmap | None = None
_at_fault: dict[str, str] = {}
"""Problems that have ended a child before this one, and how."""


def watched(body: Callable[[], int], *, broken: int = UNABLE, again: bool = False) -> int:
    """Run `body` in a child, report a problem that ends it, and return the exit code.

    Args:
        body: The command; returns its exit code.
        broken: Exit code if a problem ended the child. It is `UNABLE` if SIGKILL did, perhaps for lack of memory.
        again: Run `body` again after a problem ended it; `looking_at` then raises `ProblemError` for that problem.
    """
    _at_fault.clear()
    code, problem = _once(body, broken)
    for _ in range(MOST_AGAIN if again else 0):
        if problem is None:
            break
        before = code
        code, problem = _once(body, broken)
        code = max(before, code)  # an interrupt (130) outranks the code of the failing problem
    return code


def _once(body: Callable[[], int], broken: int) -> tuple[int, str | None]:
    """Run `body` in a child once; return the exit code and the problem that ended it."""
    global _shared
    from harness.sandbox import syscalls  # imported here: only the commands about problems need it

    _shared = mmap.mmap(-1, _BYTES)
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child handles Ctrl-C: it prints a message and exits
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, interrupt)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(UNABLE)
        code = body()
        _shared[_CODE] = code & 0xFF
        _shared[_ENDED] = 1
        return code, None
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        signal.signal(signal.SIGINT, interrupt)
    if _shared[_ENDED]:
        return _shared[_CODE], None
    if -code in BY_OTHERS:
        say(f"harness: ended by {signal.Signals(-code).name}")
        return 128 - code, None
    how = f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
    problem = _shared[_NAME:].rstrip(b"\0").decode("utf-8", "replace")
    if problem:
        say(f"harness: {problem} ended the process that executed it, {how}: fix its file or leave it out")
        _at_fault[problem] = how
        return UNABLE if code == -signal.SIGKILL else broken, problem
    say(f"harness: the command's process ended {how}, while it executed no problem")
    return UNABLE, None


@contextmanager
def looking_at(problem: str) -> Iterator[None]:
    """Note that this block executes the code of `problem`.

    Raises:
        ProblemError: The problem ended a process before.
    """
    if problem in _at_fault:
        from harness.referee.problem.loader import ProblemError

        raise ProblemError(f"it ended the process that executed it, {_at_fault[problem]}")
    if _shared is None:
        yield
        return
    name = problem.encode("utf-8", "replace")[: _BYTES - _NAME]
    _shared[_NAME:] = name.ljust(_BYTES - _NAME, b"\0")
    try:
        yield
    finally:
        _shared[_NAME:] = bytes(_BYTES - _NAME)


def code_of_broken(arguments: list[str]) -> int:
    """Return a command's exit code for a problem that ends its process."""
    return NOT_FOUND if "lint" in arguments[1:2] else UNABLE
