"""Rules of the screen: each with its family, weight and explanation for reviewers.

A finding is no verdict: honest code uses streams, threads, graphs and caches, too. `weight` says how often honest code
has the construct.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Family(StrEnum):
    """The possible misuse of a construct."""

    CLOCK = "clock"
    """To appear faster than it is."""
    ANSWER = "answer"
    """To return outputs without computing them, or outputs that are correct only in this evaluation."""
    KERNEL = "kernel"
    """To do the work without a kernel of its own."""
    HARNESS = "harness"
    """To disturb or deceive the harness."""


class Weight(StrEnum):
    """How strong a finding is alone."""

    STRONG = "strong"
    """Rare in honest kernels."""
    WEAK = "weak"
    """Frequent in honest kernels; relevant together with other findings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One kind of construct.

    Attributes:
        name: The rule's name.
        family: The possible misuse.
        weight: How strong a finding is alone.
        why: Explanation for the reviewer.
    """

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
        clock_patch="replaces a function that measures time or waits for the GPU",
        stream_not_joined="submits work to a stream of its own, and nothing in the file waits for it",
        host_callback="lets the GPU call a host function, which can continue after the call has ended",
        lazy_tensor="defines or creates a tensor type of its own, which may compute only when it is read",
        thread="starts threads or processes, which can work outside the timed call",
        cache_by_address="uses the address or identity of a tensor as a key: may return a stored result",
    ),
    **_rules(
        Family.CLOCK,
        Weight.WEAK,
        stream="uses a stream other than the current one; the call must wait for it before it ends",
        reads_clock="reads a clock: may behave differently when it is timed",
        sleeps="waits on purpose: slow warm-up calls may lead to fewer timed calls",
        call_counter="counts its calls: may behave differently in some of them",
        cache_by_shape="uses a shape as a key: harmless for plans and graphs, not for results",
        kept_between_calls="stores something in forward for later calls",
        static_tensor="keeps tensors or memory in static variables between calls",
        cuda_graph="replays a CUDA graph; it must copy its inputs into the graph",
        persisting_l2="controls which data stay in the L2 cache; without a reset, also after the call",
    ),
    **_rules(
        Family.ANSWER,
        Weight.STRONG,
        introspection="inspects frames, the garbage collector or other modules: may find expected outputs there",
        process_memory="reads or maps memory outside its inputs (/proc, ctypes, mmap, address ranges)",
        ignores_input="forward does not use one of its inputs",
        constant_answer="returns a tensor of constants or of uninitialised memory",
        input_rebuilt="seeds the random generators or calls get_inputs: may compute outputs in advance",
        private_gpu_memory="queries the driver about other allocations or processes",
    ),
    **_rules(
        Family.ANSWER,
        Weight.WEAK,
        hard_coded_shape="hard-codes a size: may be correct only for one workload",
        half_precision="converts to half precision: the output may be too inexact",
        tf32="allows or uses TF32: the output may be too inexact",
        fast_math="uses approximate arithmetic",
        changes_input="writes into an input",
    ),
    **_rules(
        Family.KERNEL,
        Weight.STRONG,
        inherits_reference="ModelNew inherits from the reference model, or the file contains it",
        decoy_kernel="has a kernel or an extension that nothing in the file uses",
        no_custom_kernel="the file has no CUDA, C++ or Triton code of its own",
        torch_compile="lets torch compile the model",
        tiny_launch="launches a kernel with a single thread",
    ),
    **_rules(
        Family.KERNEL,
        Weight.WEAK,
        falls_back="an except branch continues, possibly with torch instead of the kernel",
        vendor_library="calls torch or a vendor's library for an operation",
        library_only="its C++ sources have no kernel, only library calls",
    ),
    **_rules(
        Family.HARNESS,
        Weight.STRONG,
        process_exit="ends or signals processes",
        imports_harness="imports the harness",
        monkeypatch="replaces members of a shared module",
        dynamic_code="runs code created at run time, which this screen can't read",
        hooks="installs hooks or exit handlers that remain after the call",
        descriptors="writes to or duplicates file descriptors directly",
        network="uses the network",
        native_tricks="loads libraries, changes page protection, or runs code at load time",
        python_from_cpp="runs Python from C++",
        special_methods="defines its own attribute access, comparison or deletion",
        hidden_source="compiles a source that is not visible in the file",
    ),
    **_rules(
        Family.HARNESS,
        Weight.WEAK,
        file_access="reads or writes files",
        environment="changes environment variables",
        global_flags="changes settings of the whole process",
        private_torch="uses private members of torch",
        prints="writes to standard output or error",
    ),
}
"""All rules by name. The names are stable: `--fail-on` and records use them."""
