"""How long a thread has waited for a processor although it could have run: who reads a clock then, reads it late.

Edge: asks the kernel. Imports nothing of the harness.
"""

from __future__ import annotations

from contextlib import suppress


def waited_s() -> float:
    """Seconds that this thread has so far stood in line for a processor (Linux: the second number of `schedstat`,
    `Documentation/scheduler/sched-stats`); 0 where the kernel does not count them.
    """
    with suppress(OSError, ValueError, IndexError), open("/proc/thread-self/schedstat", "rb") as file:
        return int(file.read().split()[1]) * 1e-9
    return 0.0
