"""Make the index of CUDA's names: `python -m tests.support.cuda_names /usr/local/cuda/include`.

The names are those that the toolkit's headers, and torch's headers for CUDA, declare. The host device looks up there
whether a name that it does not know is one of CUDA's, so that it is no error of the source.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from harness.hostcuda.translate.lacking import INDEX
from harness.toolchain.cuda_source.syntax import declarators, function_declarator, name_node
from harness.toolchain.headers.lean import without_comments

HEADERS = ("*.h", "*.hpp", "crt/*.h", "crt/*.hpp", "nvtx3/*.h")
"""Of the toolkit. CUB, Thrust and libcu++ are known by their namespaces."""

_OF_CUDA = re.compile(r"\b(?:cuda[A-Z]\w+|cu[A-Z]\w+|CU[A-Z_]\w+|CU[a-z]\w+|nvtx\w+|(?:tex|surf)[A-Z0-9]\w+)\b")
_OLD = r"__(?:shfl|any|all|ballot)(?:_up|_down|_xor)?\b"
_FUNCTION = re.compile(rf"\b(?!{_OLD})(__[a-z]\w+|make_\w+|awbarrier\w+)(?=\s*\()")
"""Without those that GPUs of compute capability 7.0 and later do not have."""

_NOT_INCLUDED = re.compile(r"cupti|nvperf|generated_")
"""Headers of profilers' and of tables."""

_TORCH = ("ATen/cuda", "c10/cuda")


def names_of_cuda(include: Path) -> Iterator[str]:
    """Names that the toolkit's headers declare."""
    for pattern in HEADERS:
        for path in include.glob(pattern):
            if _NOT_INCLUDED.match(path.name):
                continue
            text = without_comments(path.read_text(errors="replace"))
            yield from _OF_CUDA.findall(text)
            yield from _FUNCTION.findall(text)


def names_of_torch(include: Path) -> Iterator[str]:
    """Names of torch's namespaces for CUDA, with the namespace; members of `CUDAAllocator` too."""
    parser = Parser(Language(tree_sitter_cuda.language()))
    for folder in _TORCH:
        for path in (include / folder).rglob("*"):
            if path.suffix in {".h", ".cuh"}:
                yield from _declared(parser.parse(_plain(path.read_text())).root_node, "")


def _plain(text: str) -> bytes:
    """A header without what the grammar does not read."""
    return re.sub(r"\b(?:C10_CUDA_API|TORCH_CUDA_\w+_API|TORCH_CUDA_API|C10_\w*API|TORCH_API)\b", "", text).encode()


def _declared(node: Node, space: str) -> Iterator[str]:
    for child in node.children:
        name = child.child_by_field_name("name")
        said = name.text.decode() if name is not None and name.text is not None else ""
        if child.type == "namespace_definition":
            yield from _declared(child, f"{space}{said}::" if said else space)
            if "cuda" in f"{space}{said}":
                yield f"{space}{said}"
        elif child.type in {"class_specifier", "struct_specifier", "enum_specifier", "alias_declaration"}:
            yield space + said
            if said == "CUDAAllocator":
                yield from _declared(child, f"{space}{said}::")
        elif child.type in {"function_definition", "declaration", "field_declaration"}:
            declarator = function_declarator(child)
            for each in [declarator] if declarator is not None else declarators(child):
                named = name_node(each)
                if named is not None and named.text is not None:
                    yield space + named.text.decode()
            yield from _declared(child, space) if declarator is None else ()
        elif child.type not in {"compound_statement", "parameter_list"}:
            yield from _declared(child, space)


def main() -> int:
    """Write the index."""
    cuda, torchs = Path(sys.argv[1]), Path(torch.__file__).with_name("include")
    held = {name for name in names_of_torch(torchs) if re.fullmatch(r"\w+(?:::\w+)*", name) and "cuda::" in name}
    held |= set(names_of_cuda(cuda))
    INDEX.write_text("".join(f"{name}\n" for name in sorted(held)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
