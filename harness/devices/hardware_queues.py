"""Choose the number of hardware queues for a process's GPU context.

The driver creates and destroys contexts one after another for all processes of a machine, with one queue in about half
the time (`results/contexts-h200.md`), and nothing can be timed meanwhile. Several streams would be serialised by one
queue. So code whose text mentions streams, graphs, or libraries that use them gets the default number; hiding streams
from this check only slows the solution itself. `tests/unit/devices/test_hardware_queues.py` pins the choice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"

ONE_QUEUE: Mapping[str, str] = {VARIABLE: "1"}

# Every repetition is bounded: the referee searches texts of megabytes that may be crafted to keep it busy.
_SEVERAL = re.compile(
    r"""
    stream_?(create|frompool|fromexternal|guard|perthread|nonblocking|begincapture)  # CUDA, torch, driver
    | setcurrent\w{0,40}stream | externalstream | legacy_?default_?stream | default-stream
    | \b(cuda|torch|cupy)\.stream | import\s[^\n]{0,200}\bstream\b
    | (?-i:\bStream\s*\() | (?<!getcurrent)cudastream\s*\(
    | graph
    | lstm | gru\b | \brnn | cudnn | nccl  # cuDNN's recurrent kernels
    | dlopen | dlsym | ctypes | cffi  # may call anything
    """,
    re.IGNORECASE | re.VERBOSE,
)


def queues_for(source: str) -> Mapping[str, str]:
    """Return the environment variables for the process that runs `source`.

    Returns:
        `ONE_QUEUE`, or nothing if the solution may use several streams.
    """
    return {} if _SEVERAL.search(source) else ONE_QUEUE
