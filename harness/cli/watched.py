"""A command whose process the code of a problem may end, noticed.

Outside layer; trusted side. The commands about problems execute these in their own process, which a problem can end
without a word and with any exit code (`os._exit(0)`, a bad access in compiled code): a gate would pass. So the command
runs in a forked child, which tells in shared memory which problem it looks at and that it came to its end; forked
before torch is imported or a GPU is used, and with nothing to do but to wait for it, its parent ends with its exit
code. The child keeps terminal, streams and process group: Ctrl-C reaches it.
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

_shared: mmap.mmap | None = None


def watched(body: Callable[[], int], *, broken: int = UNABLE) -> int:
    """The exit code of `body`, which runs in a child; where a problem ends that, it is said which, and the exit code is
    `broken` (`UNABLE` where the child was killed, maybe for the memory that it took)."""
    global _shared
    from harness.sandbox import system  # not at the top: of all commands only these need it

    _shared = mmap.mmap(-1, _BYTES)
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the child's, which says so and ends
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, interrupt)
        system.prctl(system.PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(UNABLE)
        code = body()
        _shared[_CODE] = code & 0xFF
        _shared[_ENDED] = 1
        return code
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        signal.signal(signal.SIGINT, interrupt)
    if _shared[_ENDED]:
        return _shared[_CODE]
    if -code in BY_OTHERS:
        say(f"harness: ended by {signal.Signals(-code).name}")
        return 128 - code
    how = f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
    problem = _shared[_NAME:].rstrip(b"\0").decode("utf-8", "replace")
    if problem:
        say(f"harness: {problem} ended the process that looked at it, {how}: mend its file, or leave it out")
        return UNABLE if code == -signal.SIGKILL else broken
    say(f"harness: the command's process ended {how}, while it looked at no problem")
    return UNABLE


@contextmanager
def looking_at(problem: str) -> Iterator[None]:
    """The code of `problem` runs in this block."""
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
