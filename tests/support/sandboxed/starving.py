"""A zygote that imports this sees the kernel kill something for want of memory again and again, elsewhere."""

from __future__ import annotations

import itertools
import os
import signal

from harness.sandbox import limits

limits.out_of_memory_kills = itertools.count().__next__


def die(channel: object, fds: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
