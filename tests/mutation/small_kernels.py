"""Entries of `tests/hostcuda/corpus` as a problem and a solution, so that the harness itself judges their mutants."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from harness.core.choices import PrecisionClass
from harness.core.problem import InputRules, Problem, Workload
from tests.hostcuda import corpus_entries
from tests.hostcuda.corpus_entries import Entry

FOLDER = corpus_entries.HERE / "corpus"
_VOCABULARY = """
import torch
import torch.nn.functional as F
from torch import full, zeros


def normal(*shape):
    return torch.randn(*shape)


def uniform(*shape):
    return torch.rand(*shape)


def integers(low, high, *shape):
    return torch.randint(low, high, shape, dtype=torch.int32)


def new(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype)


def tf32(x):
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
"""
_LAUNCHER = """
void call(std::vector<torch::Tensor> ins, std::vector<torch::Tensor> outs, std::vector<int64_t> sizes) {
    std::vector<const void*> in;
    std::vector<void*> out;
    std::vector<long long> size(sizes.begin(), sizes.end());
    for (auto& t : ins) in.push_back(t.data_ptr());
    for (auto& t : outs) out.push_back(t.data_ptr());
    run(in.data(), out.data(), size.data());
}
"""
_DECLARATION = "void call(std::vector<torch::Tensor>, std::vector<torch::Tensor>, std::vector<int64_t>);"


@cache
def entry_of(path: Path) -> Entry:
    """Return the entry in a file."""
    return corpus_entries.load(path)


def _precision(header: Mapping[str, Any]) -> PrecisionClass:
    """Return the class of an entry: one that allows more than float32's errors computes with 16 bits."""
    if float(header.get("tolerance", 0.0)) <= 1e-3:
        return PrecisionClass.FP32
    return PrecisionClass.BF16 if "bfloat16" in str(header["inputs"]) else PrecisionClass.FP16


def _assigned(values: Mapping[str, object], ending: str) -> str:
    return "".join(f"        {name} = ({text}){ending}\n" for name, text in values.items())


def problem(entry: Entry) -> Problem:
    """Return a problem with the entry's inputs, whose reference computes the outputs that it expects."""
    header = entry.header
    names = ", ".join(header["inputs"])
    # other names than the outputs', since a helper may have an output's name
    right = {f"right_{name}": text for name, text in header["expected"].items()}
    made = {f"made_{name}": header["outputs"][name] for name in header["expected"]}
    shaped = "".join(f"        {a} = {a}.reshape({b}.shape).to({b}.dtype)\n" for a, b in zip(right, made, strict=True))
    source = (
        f"{_VOCABULARY}\n{header.get('helpers', '')}\n\n"
        f"class Model(torch.nn.Module):\n    def forward(self, {names}):\n"
        f"{_assigned(made, '')}{_assigned(right, '')}{shaped}        return [{', '.join(right)}]\n\n\n"
        f"def get_inputs():\n    if True:\n{_assigned(header['inputs'], '.contiguous()')}    return [{names}]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    digest = hashlib.sha256(source.encode()).hexdigest()
    return Problem(
        id=f"corpus/{entry.name}",
        name=entry.name,
        path=Path(f"{entry.name}.py"),
        source=source,
        digest=digest,
        workloads={name: Workload(name=name) for name in ("full", "small")},
        precision=_precision(header),
        rules=InputRules(variants=()),
    )


def solution(entry: Entry) -> str:
    """Return a solution that launches the entry; its lines are those of the entry."""
    header = entry.header
    names = ", ".join(header["inputs"])
    outputs = _assigned(header["outputs"], ".cuda()")
    return (
        f'CUDA = r"""{entry.source}{_LAUNCHER}"""\n{_VOCABULARY}\n'
        "from torch.utils.cpp_extension import load_inline\n\n"
        f'module = load_inline(name="{entry.name}", cpp_sources="{_DECLARATION}",\n'
        '                     cuda_sources=CUDA, functions=["call"])\n\n\n'
        f"class ModelNew(torch.nn.Module):\n    def forward(self, {names}):\n{outputs}"
        f"        module.call([{names}], [{', '.join(header['outputs'])}], {list(header['sizes'])})\n"
        f"        return [{', '.join(header['expected'])}]\n"
    )
