"""How many hardware queues a process gets for its GPU context: one, where it has no use for more.

Pure; text in, environment variables out.

CUDA gives a context 8 queues, over which its streams are spread. The driver opens and ends contexts one after another
for all processes and GPUs of a machine, and takes half as long for one with a single queue: on an H200 (driver
580.159.04) 0.09 s instead of 0.15 to open it and 0.02 s instead of 0.06 to end it, of six at once
(`results/contexts-h200.md`). Nothing may be timed meanwhile, so that these are what an evaluation mostly waits for.

Work of one stream runs in order, with one queue or with eight. What runs in several at once would stand in line in one
queue, and it would count as slower than it is: code whose text speaks of making or choosing streams, of graphs (whose
branches do the same), or of a library's parts that do so by themselves, gets the usual number. Who hides that from
these words slows nobody but himself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"

ONE_QUEUE: Mapping[str, str] = {VARIABLE: "1"}

# Every repetition has an end: the referee reads texts of megabytes that may be made to keep it busy.
_SEVERAL = re.compile(
    r"""
    stream_?(create|frompool|fromexternal|guard|perthread|nonblocking|begincapture)   # CUDA's, torch's and the driver's
    | setcurrent\w{0,40}stream | externalstream | legacy_?default_?stream | default-stream
    | \b(cuda|torch|cupy)\.stream | import\s[^\n]{0,200}\bstream\b
    | (?-i:\bStream\s*\() | (?<!getcurrent)cudastream\s*\(
    | graph
    | lstm | gru\b | \brnn | cudnn | nccl                                              # cuDNN's recurrent ones
    | dlopen | dlsym | ctypes | cffi                                                   # whatever that calls
    """,
    re.IGNORECASE | re.VERBOSE,
)


def queues_for(source: str) -> Mapping[str, str]:
    """What the environment of the process that runs `source` must say of its queues: one, or nothing."""
    return {} if _SEVERAL.search(source) else ONE_QUEUE
