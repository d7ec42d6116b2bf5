"""Time that a thread waited for a processor although it was ready to run.

A clock that the thread reads after such a wait is read late.
"""

from __future__ import annotations

from contextlib import suppress


def waited_s() -> float:
    """Return the seconds that this thread has waited for a processor so far.

    The source is the second number of `/proc/thread-self/schedstat` (Linux, `Documentation/scheduler/sched-stats`).
    The result is 0 if the kernel does not count it.
    """
    with suppress(OSError, ValueError, IndexError), open("/proc/thread-self/schedstat", "rb") as file:
        return int(file.read().split()[1]) * 1e-9
    return 0.0
