"""Lean stand-ins for torch's umbrella headers: what one source needs of them, and nothing else.

Both sides use it: trusted toolchains, and `hostcuda.compile` in its sandbox. Reads torch's headers, writes text.
`torch/extension.h` takes nvcc 62 s to read and a stand-in 7 s (torch 2.13, CUDA 13.0, one tiled matrix product, two
cores), because the umbrella declares every operator and all of `torch::nn`, and because each operator's own header
drags in `ATen/Context.h` and its kin.

A stand-in holds torch's core (`Tensor` and all its methods), and of everything that hangs on names only what the
source mentions: an operator (`torch::zeros`, `at::sum`) comes with all its overloads, copied from torch's own
header, so that calls mean what they meant. What is missing does not compile, and then the full header is used: whoever
compiles must provide for that.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

FORMAT = 3
"""Version of the stand-ins; part of the cache's fingerprint."""

SHADOWED = (
    "torch/extension.h",
    "torch/all.h",
    "torch/torch.h",
    "torch/types.h",
    "torch/python.h",
    "ATen/ATen.h",
)
"""Headers that a stand-in takes the place of."""

UNIT = "harness_unit.h"
"""The part of the stand-ins that is a unit's own."""

DEFINE = "-DAT_PER_OPERATOR_HEADERS"
"""Makes torch's own headers include single operators instead of all."""

CORE = (
    "ATen/core/Tensor.h",
    "ATen/core/Formatting.h",
    "ATen/core/LegacyTypeDispatch.h",
    "ATen/core/grad_mode.h",
    "ATen/TensorGeometry.h",
    "c10/core/InferenceMode.h",
    "c10/util/Deprecated.h",
    "c10/util/Logging.h",
    "c10/util/irange.h",
    "torch/version.h",
)
PYTHON = ("torch/csrc/utils/pybind.h", "torch/csrc/Exceptions.h")
"""Conversions between Python and C++, for units that bind functions."""

_OF_KIND = {"core": (), "cuda": ("cuda_runtime.h",), "python": PYTHON}

_STANDARD = (
    "algorithm",
    "array",
    "atomic",
    "cmath",
    "complex",
    "cstdint",
    "cstdio",
    "cstdlib",
    "cstring",
    "functional",
    "iostream",
    "limits",
    "math.h",
    "memory",
    "mutex",
    "numeric",
    "optional",
    "sstream",
    "stdlib.h",
    "string",
    "tuple",
    "type_traits",
    "unordered_map",
    "utility",
    "variant",
    "vector",
)
"""What `ATen/core/Tensor.h` includes anyway, named so that overloads of `abs` and the like never depend on it."""

_STANDARD_BY_NAME = (
    "bitset",
    "chrono",
    "condition_variable",
    "deque",
    "iomanip",
    "list",
    "map",
    "queue",
    "set",
    "stack",
    "thread",
    "typeindex",
    "unordered_set",
    "valarray",
)
"""Of the rest of what the full header includes, those whose name is what they define."""

_ON_MENTION: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"\bAT_(DISPATCH|PRIVATE)_", ("ATen/Dispatch.h",)),
    (r"\bAT_DISPATCH_V2", ("ATen/Dispatch_v2.h",)),
    (r"\bTORCH_(LIBRARY|SELECTIVE|FN)|RegisterOperators", ("torch/library.h",)),
    (r"\bindexing\b|\bSlice\b|\bindex(_put_)?\s*\(\s*\{", ("ATen/TensorIndexing.h",)),
    (r"\bparallel_for\b|\bparallel_reduce\b|\b[gs]et_num_threads\b", ("ATen/Parallel.h",)),
    (r"\bglobalContext\b|\bdetail::get\w+Hooks\b", ("ATen/Context.h",)),
    (r"\bDeviceGuard\b|\bdevice_of\b", ("ATen/DeviceGuard.h",)),
    (r"\bIValue\b|\bc10::(List|Dict)\b", ("ATen/core/ivalue.h", "ATen/core/jit_type.h")),
    (r"\bGenerator\b", ("ATen/core/Generator.h",)),
    (r"\bReduction\b", ("ATen/core/Reduction.h",)),
    (r"\bTensorArg\b|\bcheck(All|Same|Dim|Size|Scalar)\w*\b", ("ATen/TensorUtils.h",)),
    (r"\b(scalar_to_tensor|wrapped_scalar_tensor)\b", ("ATen/ScalarOps.h",)),
    (r"\b(infer_size|expand_\w+|sum_to)\b", ("ATen/ExpandUtils.h",)),
    (r"\bmaybe_wrap_dims?\b", ("ATen/WrapDimUtils.h",)),
    (r"\bDimVector\b", ("ATen/DimVector.h",)),
    (r"\btorch::cuda::", ("torch/cuda.h",)),
    (r"\bTensorDataContainer\b", ("torch/csrc/api/include/torch/detail/TensorDataContainer.h",)),
    (r"\bfrom_blob\b", ("ATen/TracerMode.h",)),
    (r"\bnative_functions?\b|\bNativeFunctions\b", ("ATen/NativeFunctions.h",)),
)

MAX_CHARS = 2**18
"""Of a unit's text; what is longer gets the full headers. Real ones have tens of kilobytes. A search holds the
interpreter's lock, and four megabytes took 14 s of the process in which everybody's builds are waited for."""

_NEEDS_FULL = re.compile(
    r"\b(torch::(nn|optim|jit|autograd|data|serialize|save|load|fft|linalg|special|sparse|nested|xpu|mps)\b"
    r"|at::native::|at::Functions|register_module|TORCH_MODULE|torch/script\.h|torch/nn|torch/jit|torch/csrc/autograd)"
)
_MENTIONS_PYTHON = re.compile(r"\bpybind11|\bPYBIND11|\bpy::|\bPyObject\b|\bTHP|torch/python\.h|wrap_pybind_function")
_CALLED = re.compile(r"\b(?:at|torch)::(\w+)|\b([A-Za-z_]\w*+)\s*+[<(]")
"""What may be called. It does not look for the end of a template's arguments (`i < n` names `i`, which costs a header
at most) and gives back no space: in the process that serves all solutions, a text is read once, whatever is in it."""
_COMMENT_OR_LITERAL = re.compile(
    r"""//[^\n]*+|/\*(?:.*?\*/|.*+)|("(?:\\.|[^"\\\n])*+"?|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*+'?)""", re.DOTALL
)
"""In time that grows with the text alone: a literal that does not end is one up to the end of its line. Behind a digit
an apostrophe parts a number."""
_NAMESPACE_AT = re.compile(r"^namespace at \{.*^\}", re.MULTILINE | re.DOTALL)
_NAMESPACE_TORCH = re.compile(r"^namespace torch \{.*^\} // namespace torch$", re.MULTILINE | re.DOTALL)
_FACTORY = re.compile(r"^inline at::Tensor (\w+)\(.*?^\}", re.MULTILINE | re.DOTALL)

_OPERATOR_NEEDS = (
    ("ITensorListRef", "ATen/core/IListRef.h"),
    ("Generator", "ATen/core/Generator.h"),
    ("Reduction::", "ATen/core/Reduction.h"),
    ("Storage", "c10/core/Storage.h"),
)

_MAKE_VARIABLE = """\
namespace torch::harness_lean {
// As torch::autograd::make_variable does with a tensor that nobody else holds yet.
inline at::Tensor make_variable(at::Tensor data, bool requires_grad) {
  if (data.defined()) {
    data.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(true);
    if (requires_grad) data.set_requires_grad(true);
  }
  return data;
}
}
"""


def without_comments(text: str) -> str:
    """A C++ text with a space for each comment."""
    return _COMMENT_OR_LITERAL.sub(lambda found: found[1] or " ", text)


def needs_full(text: str) -> bool:
    """Whether a C++ text mentions what no stand-in holds, or is longer than is read. A comment mentions nothing."""
    return len(text) > MAX_CHARS or _NEEDS_FULL.search(without_comments(text)) is not None


class LeanHeaders:
    """Stand-ins for one torch, whose headers are in `include`.

    Two folders go first on the include path: one for a unit, which holds only `UNIT`, and one that all units share.
    """

    def __init__(self, include: Path) -> None:
        self._include = include
        self._api = include / "torch" / "csrc" / "api" / "include"

    def unit(self, text: str, *, python: bool = False) -> str | None:
        """The header `UNIT` for a source with this text (its own headers included).

        None where only the full headers will do. `python` asks for the conversions to Python whether the text
        mentions them or not. A comment mentions nothing.
        """
        if len(text) > MAX_CHARS:
            return None
        text = without_comments(text)
        aliases = self._aliases()
        if aliases is None or needs_full(text):
            return None
        names = {name for pair in _CALLED.findall(text) for name in pair if name}
        includes = [*_STANDARD, *(name for name in _STANDARD_BY_NAME if re.search(rf"\bstd::\w*{name}\b", text))]
        includes += CORE
        if python or _MENTIONS_PYTHON.search(text):
            includes += PYTHON
        factories = {name: body for name, body in self._factories().items() if name in names}
        scanned = "\n".join([text, *factories.values()])
        for pattern, headers in _ON_MENTION:
            if re.search(pattern, scanned):
                includes += headers
        operators = {name.removesuffix("_symint") for name in names} & self._operators()
        includes += (f"ATen/ops/{name}.h" for name in sorted(operators))
        includes.append("ATen/TensorOperators.h")
        parts = [
            "#pragma once",
            *(f"#include <{name}>" for name in dict.fromkeys(includes) if self._exists(name)),
            aliases,
        ]
        if factories:
            parts.append(_MAKE_VARIABLE)
            parts.append("namespace torch {\nusing Deleter = std::function<void(void*)>;")
            parts += factories.values()
            parts.append("}")
        return "\n".join(parts) + "\n"

    def shared(self) -> dict[str, str]:
        """Path and text of what all units share: umbrella headers that defer to `UNIT`, and every operator."""
        files = dict.fromkeys(SHADOWED, f"#pragma once\n#include <{UNIT}>\n")
        for name in sorted(self._operators()):
            if (text := self._operator(name)) is not None:
                files[f"ATen/ops/{name}.h"] = text
        operators = self._body("ATen/TensorOperators.h")
        files["ATen/TensorOperators.h"] = f"#pragma once\n#include <ATen/ops/empty_like.h>\n{operators}\n"
        return files

    def precompiled(self, kind: str) -> str:
        """What all units of a kind share (`core`; `cuda`, or `python` beside that): worth precompiling."""
        names = [*_STANDARD, *CORE, *_OF_KIND[kind]]
        return "#pragma once\n" + "".join(f"#include <{name}>\n" for name in names if self._exists(name))

    def _exists(self, name: str) -> bool:
        if "/" not in name:
            return True
        return (self._include / name).exists() or (self._api / name).exists()

    def _read(self, name: str) -> str:
        return (self._include / name).read_text(encoding="utf-8")

    def _body(self, name: str) -> str:
        """The namespace that a header defines, without what it includes."""
        found = _NAMESPACE_AT.search(self._read(name))
        return found[0] if found else ""

    @functools.cache  # noqa: B019 - one object for the life of the process
    def _aliases(self) -> str | None:
        """`torch::kFloat32` and the like, from `torch/types.h`; None where this torch's is of another form."""
        try:
            found = _NAMESPACE_TORCH.search((self._api / "torch" / "types.h").read_text(encoding="utf-8"))
        except OSError:
            return None
        return found[0] if found else None

    @functools.cache  # noqa: B019
    def _factories(self) -> dict[str, str]:
        """`torch::empty` and its kin: all overloads of each name."""
        text = self._read("torch/csrc/autograd/generated/variable_factories.h")
        found: dict[str, str] = {}
        for match in _FACTORY.finditer(text):
            body = match[0].replace("autograd::make_variable(", "harness_lean::make_variable(")
            found[match[1]] = f"{found.get(match[1], '')}{body}\n"
        return found

    @functools.cache  # noqa: B019
    def _operators(self) -> frozenset[str]:
        return frozenset(
            path.stem
            for path in (self._include / "ATen" / "ops").glob("*.h")
            if not path.stem.endswith(("_ops", "_native", "_dispatch", "_meta"))
        )

    def _operator(self, name: str) -> str | None:
        """An operator's functions in `at` without what their header drags in; None where written by hand."""
        if not (self._include / "ATen" / "ops" / f"{name}_ops.h").exists():
            return None
        body = self._body(f"ATen/ops/{name}.h")
        needs = ["ATen/core/Tensor.h", "c10/util/Deprecated.h", f"ATen/ops/{name}_ops.h"]
        needs += (header for word, header in _OPERATOR_NEEDS if word in body)
        return "#pragma once\n" + "".join(f"#include <{need}>\n" for need in needs) + body + "\n"
