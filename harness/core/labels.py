"""All labels that a record may carry, with their texts.

Both sides. A label states a fact for readers and policies; alone it never changes a status.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

TORCH_ONLY = "torch_only"
NO_CUSTOM_KERNEL = "no_custom_kernel"
LIBRARY_ONLY = "library_only"
FALLS_BACK = "falls_back"
UNCOUNTED = "uncounted_kernels"

LABELS: Mapping[str, str] = {
    "static_buffer": "every call returns the same memory",
    "other_layout": "an output has another memory layout than the reference's (or lazy negation); converting it is "
    "part of the measured time",
    "batch_counter": "does not count batches as the reference does (num_batches_tracked); nothing reads the count",
    "coerced_device": "an output was on another device and was copied over because of --device-policy coerce",
    "specialised_shape": "correct at the requested sizes; wrong, failing or out of bounds at the small workload's",
    "one_shape": "secret shapes were asked for, but the problem has none that could be judged",
    "faster_at_shown_sizes": "at least 1.25 times as fast at the shown sizes as at the secret ones, compared with the "
    "reference",
    "unexplained_time": "the referee's clock does not confirm the claimed times; the slower, conservative times count",
    "busy_host": "the host's processors were so busy that the measured time includes host delays; run it again on a "
    "quieter machine",
    "waits_for_device": "forward waits for the GPU, or takes long to submit; the wait is part of the measured time",
    "not_queued": "the calls failed, were wrong or hung when submitted as one queued batch, so their time includes "
    "launch overhead",
    "not_relaunched": "another process could not make the GPU work of a call, so less bounds the claimed times",
    "slower_relaunched": "the GPU work takes longer if another process launches it; that time counts",
    "disturbed_baseline": "the reference ran slower next to this solution than before the solution started",
    "disturbed": "another process used the GPU, or the GPU was throttled, during the timing and each repeat of it",
    "varies_between_calls": "the same inputs give different values from call to call, all within the tolerance",
    "reads_unset_shared": "a kernel reads shared memory that nothing wrote; no output depended on its content",
    "leaks_memory": "every call allocates memory by cudaMalloc and does not free it",
    "audit_incomplete": "a tool of the audit was missing or did not finish, or nothing was audited",
    "degenerate_problem": "the problem accepts outputs that are not computed from its inputs",
    TORCH_ONLY: "the file has no source of a custom kernel: no extension, no Triton, CuTe DSL or TileLang",
    NO_CUSTOM_KERNEL: "no kernel of the solution ran in the traced call",
    LIBRARY_ONLY: "all kernels that ran belong to libraries (torch, cuBLAS, cuDNN, CUB, torch.compile, ...)",
    FALLS_BACK: "the solution has kernels, but they took less than 1 % of the kernels' time, or did not run",
    UNCOUNTED: "the kernels that ran could not be determined",
}
"""Label -> its text. The names are stable: records, policies and gates use them."""


def expect_known(labels: Iterable[str]) -> None:
    """Reject unknown labels, since a rule about one would never apply.

    Raises:
        ValueError: One of `labels` is not in `LABELS`.
    """
    for label in labels:
        if label not in LABELS:
            near = difflib.get_close_matches(label, LABELS, n=1)
            hint = f" (nearest: {near[0]})" if near else ""
            raise ValueError(f"unknown label {label!r:.80}{hint}; known: {', '.join(LABELS)}")
