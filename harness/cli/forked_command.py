"""A command whose process the code of a problem may end, noticed.

Outside layer; trusted side. The commands about problems execute these in their own process, which a problem can end
without a word and with any exit code (`os._exit(0)`, a bad access in compiled code): a gate would pass. So the command
runs in a forked child, which tells in shared memory which problem it looks at and that it came to its end; forked
before torch is imported or a GPU is used, and with nothing to do but to wait for it, its parent ends with its exit
code. The child keeps terminal, streams and process group: Ctrl-C reaches it.

A command that says nothing before it has looked at all problems is made once more without the one that ended it, so
that a list lacks what one of its problems did, and nothing else.
"""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness.cli.output import NOT_FOUND, UNABLE, say

_ENDED, _CODE, _NAME = 0, 1, 2
"""Places in the shared memory: whether the child came to its end, with which exit code, and what it looks at."""
_BYTES = mmap.PAGESIZE

BY_OTHERS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE})
"""Signals that somebody else sends: no problem is to blame."""

MOST_AGAIN = 20
"""Times at most that a command is made again. Each takes as long as all that came before its problem."""

_shared: mmap.mmap | None = None
_at_fault: dict[str, str] = {}
"""Problems that have ended a child before this one, and how."""


def watched(body: Callable[[], int], *, broken: int = UNABLE, again: bool = False) -> int:
    """The exit code of `body`, which runs in a child; where a problem ends that, it is said which, and the exit code is
    `broken` (`UNABLE` where the child was killed, maybe for the memory that it took). With `again`, `body` is run once
    more then, and meets a `ProblemError` where it looks at that problem.
    """
    _at_fault.clear()
    code, problem = _once(body, broken)
    for _ in range(MOST_AGAIN if again else 0):
        if problem is None:
            break
        before = code
        code, problem = _once(body, broken)
        code = max(before, code)  # of an interrupt, or of the problem that is at fault
    return code


def _once(body: Callable[[], int], broken: int) -> tuple[int, str | None]:
    """The exit code, and the problem that ended the child, if one did, which is then known to be at fault."""
    global _shared
    from harness.sandbox import syscalls  # not at the top: of all commands only these need it

    _shared = mmap.mmap(-1, _BYTES)
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the child's, which says so and ends
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
        say(f"harness: {problem} ended the process that looked at it, {how}: mend its file, or leave it out")
        _at_fault[problem] = how
        return UNABLE if code == -signal.SIGKILL else broken, problem
    say(f"harness: the command's process ended {how}, while it looked at no problem")
    return UNABLE, None


@contextmanager
def looking_at(problem: str) -> Iterator[None]:
    """The code of `problem` runs in this block. Raises `ProblemError` where it has ended a process by that before."""
    if problem in _at_fault:
        from harness.referee.problem.loader import ProblemError

        raise ProblemError(f"it ended the process that looked at it, {_at_fault[problem]}")
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
    """The exit code of a command (`problems lint ...`) for a problem that is at fault."""
    return NOT_FOUND if "lint" in arguments[1:2] else UNABLE
