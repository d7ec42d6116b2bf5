"""Every label that a record may carry, and what it says.

Pure. A label states a fact that a reader or a policy may care about; it convicts nobody by itself. What a label rests
on is decided where its fact is found; this is the list of them, for policies, pages and their tests.
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
    "other_layout": "an output's elements lay in another order than the reference's: putting them in order was timed",
    "coerced_device": "an output was brought over by --device-policy coerce",
    "specialised_shape": "right at the sizes asked for, wrong, failing or out of bounds at the problem's small ones",
    "unexplained_time": "the referee's clock did not explain the claimed times, and the conservative ones count",
    "busy_host": "the host's processors were so busy that its calls were charged for it: run it again when it is "
    "quieter",
    "waits_for_device": "its forward waits for the GPU to finish, or takes long to submit: the wait counts as its time",
    "not_queued": "its calls failed, were wrong or did not end where they were queued: launching them counts too, "
    "where the reference can be queued",
    "disturbed_baseline": "the reference was slower beside this solution than before it was started",
    "disturbed": "another process worked on the GPU, or the GPU was throttled, while it was timed, repeats included",
    "varies_between_calls": "the same inputs do not give the same values twice, all of them right",
    "reads_unset_shared": "a kernel reads shared memory that nothing wrote; no answer depended on what stood there",
    "leaks_memory": "every call leaves memory of cudaMalloc behind",
    "audit_incomplete": "one of the audit's tools was not there or did not come to its end, or nothing was audited",
    "degenerate_problem": "the problem accepts answers that nothing was computed for",
    TORCH_ONLY: "the file brings nothing that a kernel of its own could come from: no extension, no Triton",
    NO_CUSTOM_KERNEL: "no kernel of its own ran in the call that was looked at",
    LIBRARY_ONLY: "all kernels that ran are a library's (torch, cuBLAS, cuDNN, CUB, torch.compile, ...)",
    FALLS_BACK: "it has kernels of its own, but they ran for less than 1 % of the kernels' time, or not at all",
    UNCOUNTED: "which kernels ran could not be found out",
}


def expect_known(labels: Iterable[str]) -> None:
    """Raise `ValueError` where one of these is no label: a rule about it would never apply."""
    for label in labels:
        if label not in LABELS:
            near = difflib.get_close_matches(label, LABELS, n=1)
            hint = f" (nearest: {near[0]})" if near else ""
            raise ValueError(f"there is no label {label!r:.80}{hint}; known: {', '.join(LABELS)}")
