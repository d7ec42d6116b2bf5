"""The values that a setting may have: device, precision class, baseline, and modes of a run.

Imports nothing of the harness. Both sides of the trust boundary use it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


class DeviceKind(StrEnum):
    """Where solutions execute."""

    CUDA = "cuda"
    HOST = "host"


class PrecisionClass(StrEnum):
    """How exact an answer must be, named after the arithmetic that reaches it, most exact first."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"


class Baseline(StrEnum):
    """The reference run in one way, for a solution's time to be held against. The names are those in records.

    Eager and compiled runs without a suffix keep torch's default flags: products in full fp32, convolutions by cuDNN
    in TF32 where the GPU has it.
    """

    EAGER = "eager"
    """As torch runs it; what speedups are against unless another is asked for."""
    EAGER_TF32 = "eager_tf32"
    """Products and convolutions may use TF32: faster, and of a lower class than an fp32 problem asks for."""
    EAGER_NO_TF32 = "eager_no_tf32"
    """Neither may, so that convolutions are exact too."""
    COMPILE = "compile"
    """`torch.compile` with its default mode."""
    COMPILE_TF32 = "compile_tf32"
    """The same where products and convolutions may use TF32."""
    COMPILE_MAX_AUTOTUNE = "compile_max_autotune"
    """`torch.compile(mode="max-autotune")`, which replays a CUDA graph and so copies the inputs into it."""
    COMPILE_MAX_AUTOTUNE_NO_CUDAGRAPHS = "compile_max_autotune_no_cudagraphs"
    """The same kernels without the graph, and so without those copies."""

    @property
    def mode(self) -> str | None:
        """The mode of `torch.compile`; None for eager."""
        if self.value.startswith("eager"):
            return None
        return self.value.removeprefix("compile").removesuffix("_tf32").strip("_").replace("_", "-") or "default"

    @property
    def tf32(self) -> bool | None:
        """Whether TF32 is allowed or forbidden for everything; None leaves torch's defaults."""
        return False if self.value.endswith("_no_tf32") else True if self.value.endswith("_tf32") else None


DevicePolicy = Literal["strict", "coerce"]
"""What happens to an output on the wrong device: `strict` fails it, `coerce` copies it over inside the timed
call."""

SandboxMode = Literal["auto", "strict", "off"]
"""`auto`: the strongest this machine allows; `strict`: refuse to run below full strength; `off`: no walls, only
limits and a group kill (own code, or tools such as compute-sanitizer that must reach outside)."""

AuditMode = Literal["auto", "always", "never"]
"""Whether solutions run under compute-sanitizer too, on a GPU: `auto` where it is installed, `always` or fail,
`never`."""

ExecutorName = Literal["local", "ray"]
"""Where building and judging happen: on this machine, or on a Ray cluster."""
