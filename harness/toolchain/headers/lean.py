"""Write lean headers, which replace torch's umbrella headers for one source.

Both sides: toolchains, and `hostcuda/translate/compile.py` in its sandbox. A lean header contains torch's core
(`Tensor` with all methods) and the operators that the source mentions, each with all overloads from torch's own header.
If something is missing, the source does not compile, and the caller must compile it with the full headers. See
guides/design/split_builds.md.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

FORMAT = 3
"""Version of the lean headers; part of the cache's fingerprint."""

SHADOWED = (
    "torch/extension.h",
    "torch/all.h",
    "torch/torch.h",
    "torch/types.h",
    "torch/python.h",
    "ATen/ATen.h",
)
"""Headers that lean headers replace."""

UNIT = "harness_unit.h"
"""The lean header of one unit."""

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
"""Headers that `ATen/core/Tensor.h` includes anyway, listed so that overloads of `abs` etc. never depend on it."""

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
"""Other standard headers of the full header whose name is the name that they define."""

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
"""Longest text of a unit; a longer one gets the full headers. Real ones have tens of kB. A regex search holds the
interpreter's lock: 4 MB blocked the process that serves all builds for 14 s."""

_NEEDS_FULL = re.compile(
    r"\b(torch::(nn|optim|jit|autograd|data|serialize|save|load|fft|linalg|special|sparse|nested|xpu|mps)\b"
    r"|at::native::|at::Functions|register_module|TORCH_MODULE|torch/script\.h|torch/nn|torch/jit|torch/csrc/autograd)"
)
_MENTIONS_PYTHON = re.compile(r"\bpybind11|\bPYBIND11|\bpy::|\bPyObject\b|\bTHP|torch/python\.h|wrap_pybind_function")
_CALLED = re.compile(r"\b(?:at|torch)::(\w+)|\b([A-Za-z_]\w*+)\s*+[<(]")
"""Names that may be called. The end of template arguments is not searched (`i < n` names `i`, which costs at most one
header), and no blank is given back, so that every text is read once."""
_COMMENT_OR_LITERAL = re.compile(
    r"""//[^\n]*+|/\*(?:.*?\*/|.*+)|("(?:\\.|[^"\\\n])*+"?|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*+'?)""", re.DOTALL
)
"""Runs in linear time: an unterminated literal ends with its line. An apostrophe after a digit separates digits."""
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
// As torch::autograd::make_variable does for a tensor without other owners.
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
    """Return a C++ text with each comment replaced by a space."""
    return _COMMENT_OR_LITERAL.sub(lambda found: found[1] or " ", text)


def needs_full(text: str) -> bool:
    """Whether a C++ text mentions a name that no lean header has, or is too long.

    Comments are ignored.
    """
    return len(text) > MAX_CHARS or _NEEDS_FULL.search(without_comments(text)) is not None


class LeanHeaders:
    """Lean headers for the torch whose headers are in `include`.

    Two folders go first on the include path: one per unit, which holds only `UNIT`, and one that all units share.
    """

    def __init__(self, include: Path) -> None:
        self._include = include
        self._api = include / "torch" / "csrc" / "api" / "include"

    def unit(self, text: str, *, python: bool = False) -> str | None:
        """Return the text of `UNIT` for a source, or None if it needs the full headers.

        Args:
            text: The source's text and that of its own headers. Comments are ignored.
            python: Include the conversions to Python even if the text does not mention them.
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
        """Return the shared files: umbrella headers that include `UNIT`, and operators."""
        files = dict.fromkeys(SHADOWED, f"#pragma once\n#include <{UNIT}>\n")
        for name in sorted(self._operators()):
            if (text := self._operator(name)) is not None:
                files[f"ATen/ops/{name}.h"] = text
        operators = self._body("ATen/TensorOperators.h")
        files["ATen/TensorOperators.h"] = f"#pragma once\n#include <ATen/ops/empty_like.h>\n{operators}\n"
        return files

    def precompiled(self, kind: str) -> str:
        """Return the header to precompile for a kind: `core`, `cuda` or `python`."""
        names = [*_STANDARD, *CORE, *_OF_KIND[kind]]
        return "#pragma once\n" + "".join(f"#include <{name}>\n" for name in names if self._exists(name))

    def _exists(self, name: str) -> bool:
        if "/" not in name:
            return True
        return (self._include / name).exists() or (self._api / name).exists()

    def _read(self, name: str) -> str:
        return (self._include / name).read_text(encoding="utf-8")

    def _body(self, name: str) -> str:
        """Return the namespace that a header defines, without its includes."""
        found = _NAMESPACE_AT.search(self._read(name))
        return found[0] if found else ""

    @functools.cache  # noqa: B019 - one object for the life of the process
    def _aliases(self) -> str | None:
        """Return `torch::kFloat32` etc. from `torch/types.h`; None if its form is unknown."""
        try:
            found = _NAMESPACE_TORCH.search((self._api / "torch" / "types.h").read_text(encoding="utf-8"))
        except OSError:
            return None
        return found[0] if found else None

    @functools.cache  # noqa: B019
    def _factories(self) -> dict[str, str]:
        """Return `torch::empty` etc.: all overloads of each name."""
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
        """Return an operator's functions without includes; None if hand-written."""
        if not (self._include / "ATen" / "ops" / f"{name}_ops.h").exists():
            return None
        body = self._body(f"ATen/ops/{name}.h")
        needs = ["ATen/core/Tensor.h", "c10/util/Deprecated.h", f"ATen/ops/{name}_ops.h"]
        needs += (header for word, header in _OPERATOR_NEEDS if word in body)
        return "#pragma once\n" + "".join(f"#include <{need}>\n" for need in needs) + body + "\n"
