"""What the screen looks for: every rule with its family, and why a reviewer would look.

Pure; standard library only. A rule convicts nobody (DESIGN section 4, rule 5): honest code uses streams, threads,
graphs and caches too, and `weight` says how usual a construct is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Family(StrEnum):
    """What a construct could serve, if it served no good purpose."""

    CLOCK = "clock"
    """To be measured as faster than it is."""
    ANSWER = "answer"
    """To give an answer without computing it, or one that is right only here."""
    KERNEL = "kernel"
    """To have no kernel of its own that does the work."""
    HARNESS = "harness"
    """To disturb or deceive whoever runs it."""


class Weight(StrEnum):
    """How much a finding says by itself."""

    STRONG = "strong"
    """Hardly ever found in honest kernels."""
    WEAK = "weak"
    """Honest kernels have it often; worth a look beside something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One kind of construct. `why` is a sentence for the reviewer."""

    name: str
    family: Family
    weight: Weight
    why: str


def _rules(family: Family, weight: Weight, **why: str) -> dict[str, Rule]:
    return {name: Rule(name=name, family=family, weight=weight, why=text) for name, text in why.items()}


RULES: Mapping[str, Rule] = {
    **_rules(
        Family.CLOCK,
        Weight.STRONG,
        clock_patch="replaces something that measures time or waits for the GPU",
        stream_not_joined="puts work on a stream of its own and nothing in the file waits for it",
        host_callback="lets the GPU call back into the host, where work can go on after the call has ended",
        lazy_tensor="defines or builds a tensor type of its own, which may compute only when looked at",
        thread="starts threads or processes, which can work outside of the timed call",
        cache_by_address="keys something by the address or identity of a tensor: a result remembered, not computed",
    ),
    **_rules(
        Family.CLOCK,
        Weight.WEAK,
        stream="uses a stream other than the current one; it must be joined before the call ends",
        reads_clock="reads a clock, so that it can behave differently while it is watched",
        sleeps="waits on purpose; who is slow in the warm-up may be called less often",
        call_counter="counts its calls, so that it can behave differently in some of them",
        cache_by_shape="keys something by a shape; harmless for plans and graphs, not for results",
        kept_between_calls="keeps something in forward for later calls",
        static_tensor="keeps tensors or memory in static variables between calls",
        cuda_graph="replays a CUDA graph; it must copy its inputs in",
        persisting_l2="steers what stays in the L2 cache, beyond the call if it is not reset",
    ),
    **_rules(
        Family.ANSWER,
        Weight.STRONG,
        introspection="looks at frames, the garbage collector or other modules, where an answer might be found",
        process_memory="reads or maps memory that was not given to it (/proc, ctypes, mmap, address ranges)",
        ignores_input="forward does not use one of its inputs",
        constant_answer="returns a tensor of constants or of uninitialised memory",
        input_rebuilt="seeds the random generators or calls get_inputs: could compute answers ahead",
        private_gpu_memory="asks the driver about other allocations or processes",
    ),
    **_rules(
        Family.ANSWER,
        Weight.WEAK,
        hard_coded_shape="is tied to a size by a constant; right only for the shipped workload, perhaps",
        half_precision="converts to half precision: the answer may be of a lower precision class",
        tf32="allows or uses TF32: the answer may be of a lower precision class",
        fast_math="asks for approximate arithmetic",
        changes_input="writes into an input",
    ),
    **_rules(
        Family.KERNEL,
        Weight.STRONG,
        inherits_reference="ModelNew inherits from, or the file holds, the reference model",
        decoy_kernel="has a kernel or an extension that nothing in the file uses",
        no_custom_kernel="no CUDA, C++ or Triton code of its own in the file",
        torch_compile="lets torch compile the model",
        tiny_launch="launches a kernel with a single thread",
    ),
    **_rules(
        Family.KERNEL,
        Weight.WEAK,
        falls_back="an except branch goes on, possibly with torch in place of the kernel",
        vendor_library="calls torch's or a vendor's library for an operation",
        library_only="its C++ sources have no kernel, only library calls",
    ),
    **_rules(
        Family.HARNESS,
        Weight.STRONG,
        process_exit="ends or signals processes",
        imports_harness="imports the harness that judges it",
        monkeypatch="replaces members of a module that others use too",
        dynamic_code="runs code made at run time, which this screen can't read",
        hooks="installs hooks or exit handlers that outlive the call",
        descriptors="writes to or duplicates file descriptors directly",
        network="uses the network",
        native_tricks="loads libraries, changes page protections or runs code when it is loaded",
        python_from_cpp="runs Python from C++",
        special_methods="defines attribute access, comparison or deletion of its own",
        hidden_source="compiles a source that stands nowhere in the file",
    ),
    **_rules(
        Family.HARNESS,
        Weight.WEAK,
        file_access="reads or writes files",
        environment="changes environment variables",
        global_flags="changes settings of the whole process",
        private_torch="uses torch's private parts",
        prints="writes to standard output or error",
    ),
}
"""Every rule by its name. Names are a promise: `--fail-on` and records use them."""
