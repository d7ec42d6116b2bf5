"""How long a sandbox's first thread waits for a processor that others have, by the kernel's count.

Trusted side, from outside; imports `limits`. What happens in a sandbox can make these counts larger in one way only:
by using processors with its other threads and processes, which is counted as well and taken off.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass

from harness.sandbox.limits import descendants

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contended:
    """Seconds since the sandbox began: in which its first thread could have run and had no processor (`waited_s`), and
    in which all else in it had one (`others_ran_s`)."""

    waited_s: float
    others_ran_s: float

    def since(self, before: Contended) -> float:
        """How long the first thread has waited since then, less what its own company may be to blame for."""
        return max(0.0, self.waited_s - before.waited_s - max(0.0, self.others_ran_s - before.others_ran_s))


NOTHING = Contended(waited_s=0.0, others_ran_s=0.0)


def look(supervisor: int, first: int) -> Contended:
    """The counts of process `first` and of all that is below `supervisor`; zeros where the kernel keeps none."""
    with suppress(OSError, ValueError), open(f"/proc/{first}/task/{first}/schedstat", encoding="ascii") as file:
        ran_ns, waited_ns, _ = map(int, file.read().split())
        below = descendants(supervisor)
        # Those that are gone by now count with whoever has taken note of their end.
        ended_s = sum(map(_ended_children_s, (supervisor, *below)))
        return Contended(waited_s=waited_ns * 1e-9, others_ran_s=sum(map(_ran_s, below)) + ended_s - ran_ns * 1e-9)
    return NOTHING


def _ran_s(pid: int) -> float:
    """Processor time of all threads of a process, those that have ended too."""
    with suppress(OSError):
        return time.clock_gettime_ns((~pid << 3) | 2) * 1e-9
    return 0.0


def _ended_children_s(pid: int) -> float:
    """Processor time of those children of a process whose end it has taken note of."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
        return (int(fields[13]) + int(fields[14])) * _TICK_S
    return 0.0
