"""Find the parts of CUDA that a source uses but the host device does not have.

Runs in the builder's sandbox; text in, findings out. Parts are headers, names of libraries, and symbols. A source that
fails to compile because of them is `not_emulated`: it may be right. A header or name that CUDA and torch do not have
either remains an error of the source.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.toolchain.headers.fallback import first_error
from harness.toolchain.headers.lean import without_comments

__all__ = [
    "MissingConstruct",
    "among_includes",
    "among_symbols",
    "in_log",
    "launching_headers",
    "names_of_headers",
    "out_of_sight",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingConstruct:
    """A missing `construct` in `line` (1-based) of `file` (`cuda.cu` or `main.cpp`)."""

    file: str
    line: int
    construct: str

    def note(self) -> str:
        """The line of a compiler's log from which the harness reads it."""
        return f"{self.file}:{self.line}: note: not emulated: {' '.join(self.construct.split())}\n"


_LIBRARIES = {
    "cublas": "cuBLAS",
    "cudnn": "cuDNN",
    "cusparse": "cuSPARSE",
    "cusolver": "cuSOLVER",
    "cufft": "cuFFT",
    "curand": "cuRAND",
    "nccl": "NCCL",
    "nvrtc": "NVRTC",
    "nvtx": "NVTX",
    "nvtoolsext": "NVTX",
    "cupti": "the profiler's API",
}
"""What the headers and the names of a library begin with, in lower case."""

_FOLDERS = {
    "cub": "CUB",
    "thrust": "Thrust",
    "cutlass": "CUTLASS",
    "cute": "CuTe",
    "cuda": "libcu++",
    "nv": "libcu++",
    "nvtx3": "NVTX",
    "ATen/cuda": "this torch header",
    "ATen/cudnn": "this torch header",
    "ATen/native/cuda": "this torch header",
    "ATen/native/cudnn": "this torch header",
    "ATen/native/sparse/cuda": "this torch header",
    "c10/cuda": "this torch header",
    "torch/csrc/cuda": "this torch header",
    "THC": "THC, which torch has removed",
}
"""Folders of headers; those without a slash are namespaces too."""

_TOOLKIT = re.compile(
    r"crt/.+|(?:texture|surface)_\w+\.h|channel_descriptor\.h|library_types\.h|driver_functions\.h"
    r"|cuda(?:Typedefs|Profiler\w*|EGL\w*|GL\w*|VDPAU\w*|_(?:occupancy|fp[46]|awbarrier\w*|barrier|(?:egl|gl|vdpau)_\w+))\.h"
)
"""Other headers of the toolkit that the host device may lack."""

_PARTS = {
    "cudaGraph": "CUDA graphs",
    "CUDAGraph": "CUDA graphs",
    "tex": "textures",
    "surf": "textures",
    "cudaTexture": "textures",
    "cudaSurface": "textures",
    "cuda": "this part of the CUDA runtime",
    "__": "this device function",
    "awbarrier": "asynchronous barriers",
    "cu": "the driver API",
    "CU": "the driver API",
}
"""What names of the toolkit begin with; the first that fits counts."""

INDEX = Path(__file__).resolve().with_name("cuda_names.txt")
"""The names that the headers of CUDA 13.0 and those of torch 2.13 for CUDA declare, one a line.

`python -m tests.support.cuda_names` makes it.
"""

_CUBLAS_THERE = (
    r"cublas(?:(?:Create|Destroy|Handle_t|Status_t|Operation_t|FillMode_t|DiagType_t|SideMode_t|PointerMode_t"
    r"|AtomicsMode_t|Math_t"
    r"|GemmAlgo_t|ComputeType_t|DataType_t)|(?:Get|Set)(?:Stream|PointerMode|AtomicsMode|MathMode|Vector|Matrix)"
    r"|SetWorkspace"
    r"|Get(?:Version|Property|StatusName|StatusString)|[SD](?:axpy|scal|copy|swap|dot|nrm2|asum|gemv|ger"
    r"|syrk|trsm|geam|dgmm)"
    r"|I[sd]am(?:ax|in)|[SDH]gemm(?:Batched|StridedBatched)?|SgemmEx|Gemm(?:Batched|StridedBatched)?Ex)"
    r"|CUBLAS_(?:STATUS|OP|FILL_MODE|DIAG|SIDE|POINTER_MODE|ATOMICS|GEMM)_\w+|CUBLAS_COMPUTE_(?!\w*EMULATED)\w+"
    r"|CUBLAS_(?:DEFAULT|PEDANTIC|TENSOR_OP|TF32_TENSOR_OP)_MATH"
    r"|CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION|CUBLAS_VER\w*|getCurrentCUDABlasHandle"
)
"""Names that `cublas_v2.h` and torch's context header declare.

A source that uses them without the header has an error of its own.
"""

_CURAND_THERE = (
    r"curand4?|curand_(?:init|uniform4?|uniform[24]?_double|(?:log_)?normal[24]?(?:_double)?|poisson4?|Philox4x32_10"
    r"|MRG32k3a)|curandState(?:_t)?|curandState(?:XORWOW|MRG32k3a|Philox4_32_10)(?:_t)?"
    r"|CURAND_(?:2POW32(?:_DOUBLE|_INV(?:_DOUBLE|_2PI)?)?|2POW53_INV_DOUBLE|2PI|PI_DOUBLE)"
)
"""The same for `curand_kernel.h`."""

_OF_OURS = re.compile(f"{_CUBLAS_THERE}|{_CURAND_THERE}")

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.M)
_MISSING_HEADER = re.compile(r"^(cuda\.cu|main\.cpp):(\d+):\d+: fatal error: ([^:\n]+): No such file", re.M)
_UNKNOWN_NAME = re.compile(
    r"^(cuda\.cu|main\.cpp):(\d+):\d+: error: ['‘](?:\w+::)*(\w+)['’] "
    r"(?:was not declared|has not been declared|does not name a|is not a member of ['‘](\w+)((?:::\w+)*)['’]"
    r"|in namespace ['‘](\w+)((?:::\w+)*)['’] does not name a"
    r"|is not a class, namespace)",
    re.M,
)
_PARTIAL = re.compile(
    r"^(cuda\.cu|main\.cpp):(\d+):\d+: error: (?:no matching function for call to ['‘](cub|cuda)::(\w+)\b.*::(~?\w+)\("
    r"|['‘].*?(?<!c10::)(?<!at::)\b(cub|cuda|thrust)::(\w+)\b.* has no (?:non-static data )?member named"
    r" ['‘](\w+)['’])",
    re.M,
)
"""Calls of classes that exist here in part. Whether the real library has that member or overload is unknown."""
_OVERLOAD = re.compile(
    r"^(cuda\.cu|main\.cpp):(\d+):\d+: error: no matching function for call to ['‘](\w+)(?:<.*>)?\(.*\n"
    r"(?:(?!.*: error: ).*\n)*?\S*/include/thrust/\S+: note: candidate",
    re.M,
)
"""The same for Thrust's algorithms, which the compiler names without their namespace."""
_OF_AN_OBJECT = re.compile(
    r"^(cuda\.cu|main\.cpp):(\d+):\d+: error: ['‘].*\bc10::cuda::CUDACachingAllocator::CUDAAllocator['’]"
    r".* has no member named ['‘](\w+)['’]",
    re.M,
)
_REFUSED = re.compile(
    r"^(cuda\.cu|main\.cpp):(\d+):\d+:\s+required from here\n"
    r"\S*/include/(cub|cuda)/\S+: error: static assertion failed: (.+) (?:is|are) not emulated$",
    re.M,
)
"""Template arguments that the harness's headers refuse by name. A source's own assertions have another location."""


_IN_PARTS = ("cub", "cuda", "thrust", "cutlass", "cute")
"""Namespaces of which the host device has parts. A name that a part lacks may be in the real header."""


_LIBRARIES_IN_PARTS = re.compile(r"(?:cub|thrust|cuda|nv|cutlass|cute|cooperative_groups)(?:/|\.h$)")


@functools.cache
def names_of_headers(available: Path) -> frozenset[str]:
    """All words in the headers of the host device."""
    texts = (path.read_text() for path in available.rglob("*") if path.is_file() and path.suffix != ".md")
    return frozenset(word for text in texts for word in re.findall(r"[A-Za-z_]\w*", without_comments(text)))


def out_of_sight(log: str, available: Path) -> bool:
    """Whether the first error is a name of CUDA that the source does not include.

    Names of torch's CUDA library count too. torch's umbrella headers include neither, so all of torch would not help.
    """
    error = first_error(log)
    found = None if error is None else _OUT_OF_SIGHT.match(error.message)
    if found is None:
        return False
    name = found[1] or found[2]
    of_cuda = found[1] is not None or _family(name) is not None
    return _OF_CUDA.fullmatch(name) is not None or (of_cuda and name in names_of_headers(available))


_OUT_OF_SIGHT = re.compile(
    r"'(\w+)' (?:is not a member of|in namespace) '(?:at|c10)::cuda\b"
    r"|'(\w+)' (?:was not declared|has not been declared|does not name a)"
)
_OF_CUDA = re.compile(
    r"(?:cublas|CUBLAS_|curand|CURAND_|CUDART_|CUDA_KERNEL_LOOP|__nv_|(?:C10|AT)_CUDA_)\w*"
    r"|cooperative_groups|nvcuda|wmma"
)


def among_includes(file: str, text: str, available: Path) -> Iterator[MissingConstruct]:
    """Find headers of CUDA and torch that a source includes but the host device lacks.

    Args:
        file: Name of the source, `cuda.cu` or `main.cpp`.
        text: Its text.
        available: The host device's include folder.

    Yields:
        A construct per missing header.
    """
    for match in _INCLUDE.finditer(text):
        family = _header(match[1])
        if family is not None and not (available / match[1]).exists():
            yield MissingConstruct(
                file=file, line=text.count("\n", 0, match.start(1)) + 1, construct=f"{family} (#include <{match[1]}>)"
            )


def launching_headers(text: str, available: Path, installed: Path) -> bool:
    """Whether `text` includes a torch GPU header that launches kernels.

    Headers included by it count too.

    Such a header is `installed` but not `available`. It can't compile, because nothing translates it.
    """
    waiting = [name for name in _INCLUDE.findall(text) if _header(name) and not (available / name).exists()]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        path = installed / name
        if name in seen or not name.startswith(("ATen/", "c10/", "torch/")) or not path.is_file():
            continue
        seen.add(name)
        held = path.read_text(errors="replace")
        if "<<<" in held:
            return True
        waiting += [found for found in _INCLUDE.findall(held) if not (available / found).exists()]
    return False


def in_log(log: str, available: Path, sources: Iterable[str]) -> Iterator[MissingConstruct]:
    """Find the headers and names of CUDA or torch that a failed compilation needed.

    A name that a header of the host device declares is not one of them: the source does not include that header.
    Names of CUB, Thrust and libcu++ are an exception once a source includes one of these libraries, because which
    of their headers include which depends on their version.

    Args:
        log: The compiler's output.
        available: The host device's include folder.
        sources: The texts of the solution.

    Yields:
        A construct per header or name.
    """
    in_parts = any(_LIBRARIES_IN_PARTS.match(name) for text in sources for name in _INCLUDE.findall(text))
    for match in _MISSING_HEADER.finditer(log):
        if family := _header(match[3]):
            yield MissingConstruct(file=match[1], line=int(match[2]), construct=f"{family} (#include <{match[3]}>)")
    for match in _UNKNOWN_NAME.finditer(log):
        owner = match[4] or match[6]
        within = (owner or "") + (match[5] or match[7] or "")
        if owner in _IN_PARTS:
            family, name = _FOLDERS[owner], f"{owner}::{match[3]}"
        elif owner in ("at", "c10") and f"{within}::{match[3]}" in _index():
            family, name = "this part of torch", f"{within}::{match[3]}"
        else:
            family, name = _family(match[3]), match[3]
        if family is not None and ((owner in _IN_PARTS and in_parts) or match[3] not in names_of_headers(available)):
            yield MissingConstruct(file=match[1], line=int(match[2]), construct=f"{family} ({name})")
    for match in _OF_AN_OBJECT.finditer(log):
        if f"c10::cuda::CUDACachingAllocator::CUDAAllocator::{match[3]}" in _index():
            construct = f"this part of torch (c10::cuda::CUDACachingAllocator::get()->{match[3]})"
            yield MissingConstruct(file=match[1], line=int(match[2]), construct=construct)
    for match in _PARTIAL.finditer(log):
        library, owner, name = (match[i] or match[i + 3] for i in (3, 4, 5))
        construct = f"{_FOLDERS[library]} ({library}::{owner}::{name} with these arguments)"
        yield MissingConstruct(file=match[1], line=int(match[2]), construct=construct)
    for match in _OVERLOAD.finditer(log):
        construct = f"{_FOLDERS['thrust']} (thrust::{match[3]} with these arguments)"
        yield MissingConstruct(file=match[1], line=int(match[2]), construct=construct)
    for match in _REFUSED.finditer(log):
        yield MissingConstruct(
            file=match[1], line=int(match[2]), construct=f"{_FOLDERS[match[3]]} ({match[4].strip()})"
        )


_SYMBOL = re.compile(r"(cublas|cudnn|cusparse|cusolver|cufft|curand|nccl|nvrtc|cu[A-Z])\w*")


def among_symbols(symbols: Iterable[str], texts: Iterable[tuple[str, str]]) -> Iterator[MissingConstruct]:
    """Find undefined symbols that only CUDA's libraries or torch's CUDA build define.

    Args:
        symbols: Undefined symbols of the linked module.
        texts: The sources by file name, to find the line in.

    Yields:
        A construct per symbol.
    """
    sources = list(texts)
    for symbol in symbols:
        if _SYMBOL.fullmatch(symbol):
            name = symbol
        elif mangled := re.match(r"_ZNK?(?:2at|3c10|5torch)(?:4cuda|5cudnn)(\w+)", symbol):
            name = _innermost(mangled[1])
        else:
            continue
        family = _family(name) or "this part of torch"
        file, line = next(
            (
                (file, text.count("\n", 0, found.start()) + 1)
                for file, text in sources
                if (found := re.search(rf"\b{re.escape(name)}\b", text))
            ),
            ("cuda.cu", 1),
        )
        yield MissingConstruct(file=file, line=line, construct=f"{family} ({name})")


def _innermost(mangled: str) -> str:
    """The last name of a nested one in the Itanium ABI: `6detail3fooEv` gives `foo`."""
    name = ""
    while (number := re.match(r"\d+", mangled)) is not None:
        end = number.end() + int(number[0])
        name, mangled = mangled[number.end() : end], mangled[end:]
    return name


@functools.cache
def _index() -> frozenset[str]:
    return frozenset(INDEX.read_text().split())


def _header(name: str) -> str | None:
    """What of CUDA or torch a header belongs to; None for any other."""
    folder = name.rpartition("/")[0]
    around = [folder, *(folder[:i] for i, c in enumerate(folder) if c == "/")]
    if found := next((_FOLDERS[each] for each in around if each in _FOLDERS), None):
        return found
    if name.endswith(".h") and (library := _library(name)):
        return library
    return "this CUDA header" if _TOOLKIT.fullmatch(name) else None


def _library(name: str) -> str | None:
    return next((library for prefix, library in _LIBRARIES.items() if name.lower().startswith(prefix)), None)


def _family(name: str) -> str | None:
    """What of CUDA or torch a name that is missing here belongs to; or None."""
    if name in _IN_PARTS:
        return _FOLDERS[name]
    if library := _library(name):
        return None if _OF_OURS.fullmatch(name) else library
    if name.startswith("getCurrentCUDABlas"):
        return None if _OF_OURS.fullmatch(name) else "cuBLAS"
    if name in _index():
        return next((part for prefix, part in _PARTS.items() if name.startswith(prefix)), "this part of CUDA")
    return None
