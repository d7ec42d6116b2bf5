"""Choose the number of hardware queues for a process's GPU context.

CUDA spreads the streams of a context over 8 hardware queues. The driver creates and destroys contexts one after another
for all processes and GPUs of a machine. With one queue, creating takes 0.09 s instead of 0.15 s and destroying 0.02 s
instead of 0.06 s (six contexts at once, H200, driver 580.159.04, `results/contexts-h200.md`). Nothing can be timed
meanwhile, so an evaluation mostly waits for this.

Work of one stream runs in order with any number of queues. Work of several streams would be serialised by one queue and
look slower. So code whose text mentions streams, graphs, or libraries that use streams gets the default number. Hiding
streams from this check only slows the solution itself. `tests/unit/devices/test_hardware_queues.py` pins the choice.
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
