"""Values of settings: device, precision class, baseline, modes of a run.

Both sides.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


class DeviceKind(StrEnum):
    """Where solutions execute."""

    CUDA = "cuda"
    HOST = "host"


class PrecisionClass(StrEnum):
    """How exact an output must be, named after the arithmetic that reaches it.

    The most exact class is first.
    """

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    """Whole numbers of eight bits, with a scale for each group of 128 along a row."""
    FP8_E4M3 = "fp8_e4m3"
    MXFP8 = "mxfp8"
    """e4m3, with a power of two for each 32 along a row."""
    FP8_E5M2 = "fp8_e5m2"
    FP8 = "fp8"
    """Either of the two 8-bit floating-point formats."""
    NVFP4 = "nvfp4"
    """e2m1, with a scale in e4m3 for each 16 along a row."""
    INT4 = "int4"
    """As `INT8`, of four bits."""
    MXFP4 = "mxfp4"
    """e2m1, with a power of two for each 32 along a row."""


class Baseline(StrEnum):
    """A way to run the reference, whose time a solution's time is compared with.

    The values are the names in records. Baselines without a TF32 suffix keep torch's default flags: matrix products
    in full fp32, convolutions by cuDNN in TF32 if the GPU supports it.
    """

    EAGER = "eager"
    """As torch runs it; the default baseline of speedups."""
    EAGER_TF32 = "eager_tf32"
    """Matrix products and convolutions may use TF32: faster, but too inexact for an fp32 problem."""
    EAGER_NO_TF32 = "eager_no_tf32"
    """Neither matrix products nor convolutions may use TF32."""
    COMPILE = "compile"
    """`torch.compile` in its default mode."""
    COMPILE_TF32 = "compile_tf32"
    """`torch.compile` in its default mode; matrix products and convolutions may use TF32."""
    COMPILE_MAX_AUTOTUNE = "compile_max_autotune"
    """`torch.compile(mode="max-autotune")`. It replays a CUDA graph, so each call copies the inputs into the graph."""
    COMPILE_MAX_AUTOTUNE_NO_CUDAGRAPHS = "compile_max_autotune_no_cudagraphs"
    """The kernels of max-autotune without the CUDA graph, and so without these copies."""

    @property
    def mode(self) -> str | None:
        """Mode of `torch.compile`; None for eager."""
        if self.value.startswith("eager"):
            return None
        return self.value.removeprefix("compile").removesuffix("_tf32").strip("_").replace("_", "-") or "default"

    @property
    def tf32(self) -> bool | None:
        """True allows TF32 everywhere, False forbids it, None keeps torch's defaults."""
        return False if self.value.endswith("_no_tf32") else True if self.value.endswith("_tf32") else None


Rules = Literal["strict", "kernelbench"]
"""What a solution is judged by.

`strict`: stress inputs, and the state that the reference updates. `kernelbench`: outputs on the problem's own inputs.
"""

InputChoice = Literal["all", "own"]
"""Inputs of the calls: the problem's own and stress inputs, or its own only."""

HalfType = Literal["fp16", "bf16"]
"""Type of inputs and parameters of problems that are written for float32."""

DevicePolicy = Literal["strict", "coerce"]
"""Handling of an output on the wrong device.

`strict`: the solution fails. `coerce`: the output is copied, and the copy is part of the timed call.
"""

SandboxMode = Literal["auto", "strict", "off"]
"""Strength of the sandbox.

`auto`: the strongest that this machine allows. `strict`: stop if the machine does not allow full strength.
`off`: no isolation, only limits and a kill of the process group; for trusted code, or tools such as compute-sanitizer
that need access outside.
"""

AuditMode = Literal["auto", "always", "never"]
"""Whether solutions on a GPU also run under compute-sanitizer.

`auto`: if it is installed. `always`: stop if it is not installed. `never`: no.
"""

Syntax = Literal["host", "nvcc"]
"""Which compiler decides on the host device whether CUDA sources are valid.

`host`: the host device's own. `nvcc`: first nvcc, then the host device's.
"""

ExecutorName = Literal["local", "ray"]
"""Where builds and evaluations run: this machine, or a Ray cluster."""
