"""What makes an honest solution of a low-precision problem too exact, or too coarse, for its problem.

Each entry replaces one text of the solution. `bf16` computes in bfloat16 what the problem defines in a narrower or in a
wider type: it leaves the quantisation out, or rounds on the way to the codes. `coarser` takes the next coarser format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from harness.catalog import Catalog, load_problems
from harness.core.choices import PrecisionClass
from harness.devices.device import Device
from harness.protocol.tensor_tree import flatten, unflatten
from harness.referee.problem.loader import load_reference
from harness.referee.problem.truth import Reference
from harness.referee.soundness.samples import Leaves, ReferenceCall, SampleDrawer, make_sample
from tests.support.paths import ROOT

SOLUTIONS = "solutions/quantised"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoiled:
    """A text of an honest solution, and what takes its place."""

    text: str
    bf16: str
    coarser: str

    def variants(self, source: str) -> dict[str, str]:
        """Return the sources of both variants; the text must occur once."""
        assert source.count(self.text) == 1, self.text
        return {"bf16": source.replace(self.text, self.bf16), "coarser": source.replace(self.text, self.coarser)}


E5M2_IN_E4M3 = ".to(torch.float8_e5m2).float().to(torch.float8_e4m3fn)"
TWO_BITS = "torch.ldexp((torch.frexp({0}).mantissa * 4).round() / 4, torch.frexp({0}).exponent)"


def _codes(given: str, scale: str = "scale") -> Spoiled:
    text = f"return ({given} * (1 / {scale})).to(torch.float8_e4m3fn)"
    return Spoiled(
        text=text,
        bf16=f"return ({given}.bfloat16() * (1 / {scale}).bfloat16()).to(torch.float8_e4m3fn)",
        coarser=f"return ({given} * (1 / {scale})){E5M2_IN_E4M3}",
    )


_NARROW = Spoiled(
    text="return scaled.to(torch.float8_e4m3fn)",
    bf16="return scaled.bfloat16()",
    coarser="return scaled.to(torch.float8_e5m2)",
)
_NARROW_MX = Spoiled(
    text="return scaled.clamp(-448, 448).to(torch.float8_e4m3fn)",
    bf16="return scaled.bfloat16()",
    coarser="return scaled.clamp(-448, 448).to(torch.float8_e5m2)",
)


_CUDA_CODES = Spoiled(
    text="#define ROUNDED(v) __nv_fp8_e4m3(v)",
    bf16="#define ROUNDED(v) __nv_fp8_e4m3(__bfloat162float(__float2bfloat16(v)))",
    coarser="#define ROUNDED(v) __nv_fp8_e4m3(float(__nv_fp8_e5m2(v)))",
)

_KEPT = Spoiled(
    text="return values.float()",
    bf16="return values.bfloat16().float()",
    coarser="return values.to(torch.float8_e4m3fn).float() if values.dtype.itemsize > 1 else values.float()",
)

SPOILED: Mapping[str, Spoiled] = {
    "level1/122_torch.py": _codes("x"),
    "level1/123_torch.py": Spoiled(
        text="return (x * (1 / scale)).to(torch.float8_e5m2)",
        bf16="return (x.bfloat16() * (1 / scale).bfloat16()).to(torch.float8_e5m2)",
        coarser=f"return {TWO_BITS.format('(x * (1 / scale))')}.to(torch.float8_e5m2)",
    ),
    "level1/124_torch.py": _codes("x"),
    "level1/125_torch.py": Spoiled(
        text="return scaled.clamp(-448, 448).to(torch.float8_e4m3fn)",
        bf16="return scaled.bfloat16().clamp(-448, 448).to(torch.float8_e4m3fn)",
        coarser=f"return scaled.clamp(-448, 448){E5M2_IN_E4M3}",
    ),
    "level1/126_torch.py": Spoiled(
        text="return scaled\n",
        bf16="return scaled.bfloat16().float()\n",
        coarser="return scaled.round()\n",  # whole numbers of three bits and a sign
    ),
    "level1/127_torch.py": Spoiled(
        text="return blocked / unit",
        bf16="return blocked.bfloat16().float() / unit",
        coarser="return blocked / torch.exp2(torch.log2(unit).floor())",  # the scale of mxfp4
    ),
    "level1/128_torch.py": Spoiled(
        text="return numbers * scale",
        bf16="return (numbers.bfloat16() * scale.bfloat16()).float()",
        coarser="return numbers * torch.exp2(torch.log2(scale).floor())",
    ),
    "level1/129_torch.py": Spoiled(
        text="return grouped / scale",
        bf16="return (grouped.bfloat16() / scale.bfloat16()).float()",
        coarser="return (grouped / scale / 2).round() * 2 - (grouped > 6 * scale).float()",  # three bits
    ),
    "level1/130_torch.py": _codes("values"),
    "level2/140_torch.py": _NARROW,
    "level2/141_torch.py": _NARROW,
    "level2/142_torch.py": _NARROW,
    "level2/143_torch.py": Spoiled(
        text="return scaled.clamp(-57344, 57344).to(torch.float8_e5m2)",
        bf16="return scaled.clamp(-57344, 57344).bfloat16()",
        coarser=f"return {TWO_BITS.format('scaled.clamp(-57344, 57344)')}",
    ),
    "level2/144_torch.py": _NARROW_MX,
    "level2/145_torch.py": _NARROW_MX,
    "level2/146_torch.py": Spoiled(
        text="return torch.copysign((size / step).round() * step, scaled)",
        bf16="return scaled.bfloat16().float()",
        coarser="return scaled.round()",
    ),
    "level2/147_torch.py": Spoiled(
        text="return scaled.round()",
        bf16="return scaled.bfloat16()",
        coarser="return (scaled / 16).round() * 16",  # four bits
    ),
    "level2/148_torch.py": Spoiled(
        text="return (q.float().view(*scale.shape, -1) * scale.float()[:, :, None]).flatten(1)",
        bf16="return (q.bfloat16().view(*scale.shape, -1) * scale.bfloat16()[:, :, None]).flatten(1).float()",
        coarser="return ((q / 16).round().mul(16).view(*scale.shape, -1) * scale.float()[:, :, None]).flatten(1)",
    ),
    "level2/149_torch.py": Spoiled(
        text="return ((q.view(*scale.shape, -1) - zero[:, :, None]).float() * scale.float()[:, :, None]).flatten(1)",
        bf16="return ((q.view(*scale.shape, -1) - zero[:, :, None]).bfloat16() * scale.bfloat16()[:, :, None])"
        ".flatten(1).float()",
        coarser="return (((q // 2 * 2).view(*scale.shape, -1) - zero[:, :, None]).float() * scale.float()[:, :, None])"
        ".flatten(1)",
    ),
    "level2/150_torch.py": Spoiled(
        text="return (q.view(scale.shape[0], -1, scale.shape[1]) - zero[:, None]).float() * scale.float()[:, None]",
        bf16="return ((q.view(scale.shape[0], -1, scale.shape[1]) - zero[:, None]).bfloat16()"
        " * scale.bfloat16()[:, None]).float()",
        coarser="return ((q // 2 * 2).view(scale.shape[0], -1, scale.shape[1]) - zero[:, None]).float()"
        " * scale.float()[:, None]",
    ),
    "level2/151_torch.py": _codes("normed"),
    "level2/152_torch.py": _codes("gated"),
    "level2/153_torch.py": _KEPT,
    "level2/154_torch.py": _KEPT,
    "level2/155_torch.py": _KEPT,
    "level1/122_cuda.py": _CUDA_CODES,
    "level1/125_cuda.py": _CUDA_CODES,
    "level1/127_cuda.py": Spoiled(
        text="#define SCALED(v, unit) ((v) / (unit))",
        bf16="#define SCALED(v, unit) (__bfloat162float(__float2bfloat16(v)) / (unit))",
        coarser="#define SCALED(v, unit) ((v) / exp2f(floorf(log2f(unit))))",
    ),
    "level1/128_cuda.py": Spoiled(
        text="#define KEPT(v) (v)",
        bf16="#define KEPT(v) __bfloat162float(__float2bfloat16(v))",
        coarser="#define KEPT(v) exp2f(floorf(log2f(v)))",
    ),
    "level2/141_cuda.py": Spoiled(
        text="#define ROUNDED(v) float(__nv_fp8_e4m3(v))",
        bf16="#define ROUNDED(v) __bfloat162float(__float2bfloat16(v))",
        coarser="#define ROUNDED(v) float(__nv_fp8_e5m2(v))",
    ),
    "level2/149_cuda.py": Spoiled(
        text="#define WEIGHT(q, zero, scale) (((int)(q) - (int)(zero)) * (scale))",
        bf16="#define WEIGHT(q, zero, scale) __bfloat162float(__float2bfloat16(((int)(q) - (int)(zero)) * (scale)))",
        coarser="#define WEIGHT(q, zero, scale) (((int)(q) / 2 * 2 - (int)(zero)) * (scale))",
    ),
    "level2/151_cuda.py": _CUDA_CODES,
}
"""By path below `solutions/quantised`."""

TORCH = [label for label in SPOILED if label.endswith("_torch.py")]


@cache
def _problems() -> Catalog:
    return load_problems(ROOT / "problems")


def source_of(label: str) -> str:
    """Return the text of an honest solution."""
    return (ROOT / SOLUTIONS / label).read_text(encoding="utf-8")


def problem_of(label: str) -> str:
    """Return the problem of a solution, such as `level1/122`."""
    return label.partition("_")[0]


def calls_of(key: str, device: Device, precision: PrecisionClass | None = None) -> Iterator[ReferenceCall]:
    """Yield the calls that a solution is judged with, at the small sizes and the problem's class or another."""
    problem = _problems()[key]
    required = precision or problem.precision
    reference = load_reference(problem, problem.workloads["small"])
    oracle, drawer = Reference(reference, device, seed=7), SampleDrawer(reference, device)
    leaves, tree = drawer.inputs("own")
    oracle.try_out(unflatten(tree, [leaf.clone() for leaf in leaves]), 7)
    first = make_sample("own", leaves, tree, 7, oracle, required)
    return drawer.samples(oracle, problem, required, first)


def outputs_of(source: str, call: ReferenceCall) -> Leaves:
    """Return the outputs of a solution that needs no compiler, run in this process."""
    space: dict[str, Any] = {}
    exec(compile(source, "solution", "exec"), space)
    with torch.no_grad():
        return tuple(flatten(space["ModelNew"]()(*unflatten(call.tree, list(call.inputs))))[0])
