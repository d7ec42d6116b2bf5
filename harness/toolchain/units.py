"""List the files that torch would write for an extension, and their origins.

Trusted side.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.toolchain.diagnostics import SourceMap
from harness.toolchain.spec import ExtensionSpec, is_cuda_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One file to compile.

    Attributes:
        file: Its name.
        text: Its text.
        cuda: Whether nvcc compiles it.
        parts: The source texts in it, as in `SourceMap.parts`.
    """

    file: str
    text: str
    cuda: bool
    parts: tuple[tuple[str, str, int], ...]

    @property
    def map(self) -> SourceMap:
        """Map from the file's lines to the source texts."""
        return SourceMap(file=self.file, parts=self.parts)

    @property
    def object(self) -> str:
        stem = Path(self.file).stem
        return f"{stem}.cuda.o" if self.cuda else f"{stem}.o"


def units_of(spec: ExtensionSpec) -> list[Unit]:
    """Return the files that torch would compile, with torch's own additions."""
    if spec.compiled:
        texts = {file.path: file.text for file in spec.files}
        return [
            Unit(
                file=name,
                text=texts[name],
                cuda=spec.uses_cuda and is_cuda_file(name),
                parts=((name, texts[name], 1),),
            )
            for name in spec.compiled
        ]
    bindings = []
    if spec.functions is not None:
        bindings.append("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {")
        for name, doc in spec.functions:
            function = f"torch::wrap_pybind_function({name})" if spec.with_pytorch_error_handling else name
            bindings.append(f'm.def("{name}", {function}, "{doc}");')
        bindings.append("}")
    cpp = [] if spec.no_implicit_headers else ["#include <torch/extension.h>"]
    cuda = [] if spec.no_implicit_headers else [f"#include <{name}>" for name in _CUDA_HEADERS]
    units = [_joined("main.cpp", cpp, "cpp source", spec.cpp_sources, "\n".join(bindings), cuda=False)]
    if spec.cuda_sources:
        units.append(_joined("cuda.cu", cuda, "cuda source", spec.cuda_sources, "", cuda=spec.uses_cuda))
    return units


def texts_of(spec: ExtensionSpec) -> list[SourceMap]:
    """Return the source maps of `main.cpp` and `cuda.cu` on the host device.

    The host device joins the texts without anything before them.
    """
    if spec.compiled:
        named = [(file.path, file.text) for file in spec.files if file.path in spec.compiled]
        groups = {
            "main.cpp": [item for item in named if not is_cuda_file(item[0])],
            "cuda.cu": [item for item in named if is_cuda_file(item[0])],
        }
    else:
        groups = {
            "main.cpp": [(f"cpp source {number}", text) for number, text in enumerate(spec.cpp_sources, 1)],
            "cuda.cu": [(f"cuda source {number}", text) for number, text in enumerate(spec.cuda_sources, 1)],
        }
    maps = []
    for file, items in groups.items():
        parts = []
        line = 1
        for name, text in items:
            parts.append((name, text, line))
            line += text.count("\n") + 1
        maps.append(SourceMap(file=file, parts=tuple(parts)))
    return maps


_CUDA_HEADERS = ("torch/types.h", "cuda.h", "cuda_runtime.h")


def _joined(file: str, head: list[str], name: str, sources: tuple[str, ...], tail: str, *, cuda: bool) -> Unit:
    texts = [*head]
    parts = []
    line = len(head) + 1
    for number, source in enumerate(sources, 1):
        parts.append((f"{name} {number}", source, line))
        texts.append(source)
        line += source.count("\n") + 1
    if tail:
        parts.append(("generated bindings", tail, line))
        texts.append(tail)
    return Unit(file=file, text="\n".join(texts), cuda=cuda, parts=tuple(parts))
