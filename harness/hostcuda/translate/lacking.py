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

__all__ = ["MissingConstruct", "among_includes", "among_symbols", "in_log", "launching_headers", "out_of_sight"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingConstruct:
    """A missing `construct` in `line` (1-based) of `file` (`cuda.cu` or `main.cpp`)."""

    file: str
    line: int
    construct: str

    def note(self) -> str:
        """The line of a compiler's log from which the harness reads it."""
        return f"{self.file}:{self.line}: note: not emulated: {' '.join(self.construct.split())}\n"


_HEADERS = (
    (r"cublas\w*\.h|cublasLt\.h", "cuBLAS"),
    (r"cudnn\w*\.h", "cuDNN"),
    (r"cusparse\w*\.h", "cuSPARSE"),
    (r"cusolver\w*\.h", "cuSOLVER"),
    (r"cufft\w*\.h", "cuFFT"),
    (r"curand\w*\.h", "cuRAND"),
    (r"nccl\w*\.h", "NCCL"),
    (r"nvrtc\w*\.h", "NVRTC"),
    (r"nvtx3/.+|nvToolsExt\w*\.h", "NVTX"),
    (r"cupti\w*\.h|cudaProfiler\w*\.h", "the profiler's API"),
    (r"cub/.+", "CUB"),
    (r"thrust/.+", "Thrust"),
    (r"cutlass/.+", "CUTLASS"),
    (r"cute/.+", "CuTe"),
    (r"(cuda|nv)/.+", "libcu++"),
    (r"(texture|surface)_\w+\.h|channel_descriptor\.h", "textures"),
    (r"cudaTypedefs\.h|cuda_occupancy\.h", "the driver API"),
    (r"cuda_fp[46]\.h", "4-bit and 6-bit floating point"),
    (r"cuda_awbarrier\w*\.h|cuda_barrier\.h", "asynchronous barriers"),
    (
        r"crt/.+|library_types\.h|driver_functions\.h|cuda(_egl_|_gl_|_vdpau_|EGL|GL|VDPAU)\w*\.h",
        "this CUDA header",
    ),
    (
        r"(ATen|c10)/(cuda|cudnn)/.+|ATen/native/(cuda|cudnn|sparse/cuda)/.+|torch/csrc/cuda/.+",
        "this torch header",
    ),
    (r"THC/.+", "THC, which torch has removed"),
)
_HEADER_FAMILIES = tuple((re.compile(pattern), name) for pattern, name in _HEADERS)

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

_NAMES = (
    (rf"(?!(?:{_CUBLAS_THERE})$)(?:cublas\w*|CUBLAS_\w+|getCurrentCUDABlas\w*)", "cuBLAS"),
    (r"cudnn\w*|CUDNN_\w+", "cuDNN"),
    (r"cusparse\w*|CUSPARSE_\w+", "cuSPARSE"),
    (r"cusolver\w*|CUSOLVER_\w+", "cuSOLVER"),
    (r"cufft\w*|CUFFT_\w+", "cuFFT"),
    (rf"(?!(?:{_CURAND_THERE})$)(?:curand\w*|CURAND_\w+)", "cuRAND"),
    (r"nccl[A-Z]\w*", "NCCL"),
    (r"nvrtc\w*", "NVRTC"),
    (r"nvtx\w*", "NVTX"),
    (r"thrust", "Thrust"),
    (r"cutlass", "CUTLASS"),
    (r"cute", "CuTe"),
    (r"cub", "CUB"),
    (r"cuda", "libcu++"),
    (r"cudaGraph\w*|cudaStream\w*Capture\w*|cudaUserObject\w*|CUDAGraph\w*", "CUDA graphs"),
    (r"tex[123]D\w*|texCubemap\w*|surf[123]D\w*|surfCubemap\w*", "textures"),
    (r"cuda\w*(Texture|Surface|Array|Channel)\w*", "textures"),
    (r"cuda(Malloc3D|Memcpy3D|Memset3D|Memcpy\w*Batch)\w*|cudaExtent|cudaPos|cudaPitchedPtr|make_cuda\w+", "3D copies"),
    (r"cudaMemPool\w*|cuda\w+MemPool|cudaMallocFromPool\w*", "memory pools"),
    (r"cudaLaunch(Attribute|MemSyncDomain)\w*", "launch attributes other than clusters and hints"),
    (
        r"cuda(Ipc|ExternalMemory|ExternalSemaphore|Import|Library|Graphics|Logs|GetDriverEntryPoint)\w*",
        "this CUDA API",
    ),
    (r"__cluster_map_shared_multicast", "multicast in clusters"),
    (
        r"__is(?:Local|Constant|GridConstant)|__cvta_\w*grid_constant\w*|__prof_trigger|__pm[0-3]",
        "this device function",
    ),
    (r"awbarrier\w*", "asynchronous barriers"),
    (r"__nv_(fp|cvt_\w*fp)[46]\w*|__nv_cvt_\w*e8m0\w*", "4-bit and 6-bit floating point"),
    (
        r"cu(Tensor|Mem|Module|Launch|Device|Ctx|Stream|Event|Get|Func|Library|Kernel)[A-Z]\w*|CU[a-z]\w*|CU_\w+",
        "the driver API",
    ),
    (
        r"cuda(DevAttr|DevP2PAttr|Error|Access(Policy|Property)|Stream(Attr|ID|Get|Set|Copy|Attach)|Mem(Location|Range|Access|Attach|Discard)"
        r"|Limit|SyncPolicy|SynchronizationPolicy|FuncAttribute|FuncGet|HostAlloc|HostRegister|EventRecord|EventWait|PeerAccess|UUID"
        r"|OccupancyAvailable|Jit|Kernel_t|GetKernel|KernelSet)\w*"
        r"|cuda(ChooseDevice|SetValidDevices|InitDevice|InvalidDeviceId|CtxResetPersistingL2Cache|ComputeMode\w*)"
        r"|cudaDevice((Dis|En)ablePeerAccess|Get(ByPCIBusId|CacheConfig|P2PAttribute|PCIBusId|SharedMemConfig)|Schedule\w+|MapHost|BlockingSync)",
        "this part of the CUDA runtime",
    ),
    (r"CUDAGenerator\w*|Philox\w*|PhiloxCudaState|gemm|bgemm", "this part of torch"),
)
_NAME_FAMILIES = tuple((re.compile(pattern), name) for pattern, name in _NAMES)

_OF_TORCH = re.compile(
    r"CUDAMultiStreamGuard|CUDAStreamCaptureModeGuard|CUDAEventPool|CUDAAllocator\w*|CUDAPluggableAllocator"
    r"|Caching(?:Host)?Allocator\w*|MemPool\w*|GreenContext|PointerModeGuard|ThrustAllocator|OffsetCalculator\w*"
    r"|SyncDebugMode|CaptureStatus|warning_state|detail|jit|blas|solver|sparse|allocator|memcpy_and_sync"
    r"|stream_synchronize|sleep|flush_icache"
    r"|(?:get|Get|set|Set|Exchange|MaybeExchange|MaybeSet|SetTarget)Device(?!Properties$)\w*|ExchangeDevice"
    r"|device_count_ensure_non_zero"
    r"|(?:current|is)Stream\w*Capture\w*|canDeviceAccessPeer|get_p2p_access|hasPrimaryContext|getNumGPUs"
    r"|get(?:Current|Default)C(?:UDA|udss)\w+|(?:get|set|reset)C\w+WorkspaceSize|getCachingHostAllocator"
    r"|getPinnedMemoryAllocator|(?:in|ex)clusive_\w+|mask_exclusive_sum|radix_sort_\w+|(?:empty|empty_strided)_cuda"
    r"|getCudaDataType|ScalarTypeToCudaDataType|CUDA_tensor_apply\d\w*"
)
"""Names of torch's at::cuda and c10::cuda (2.13) that the host device does not have."""

_OF_ITS_ALLOCATOR = re.compile(
    r"\w*MemoryFraction|\w*Stats|\w*AllocateToPool|\w*[pP]ool\w*|enable\w*|isEnabled|init|cacheInfo|snapshot"
    r"|getBaseAllocation|\w*History\w*|\w*Observer|\w*Tracker|getContextForPointer|getCheckpointState|memcpyAsync"
    r"|shareIpcHandle|getIpcDevPtr|getExpandableSegmentSizes|allocateWithAddress|name|recordAnnotation|\w+UserMetadata"
    r"|\w+CompileContext|SnapshotInfo|DeviceStats|Stat\w*|CheckpointDelta|ShareableHandle"
)

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
def _names(available: Path) -> frozenset[str]:
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
    of_cuda = found[1] is not None or _family(name, _NAME_FAMILIES) is not None
    return _OF_CUDA.fullmatch(name) is not None or (of_cuda and name in _names(available))


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
        family = _family(match[1], _HEADER_FAMILIES)
        if family is not None and not (available / match[1]).exists():
            yield MissingConstruct(
                file=file, line=text.count("\n", 0, match.start(1)) + 1, construct=f"{family} (#include <{match[1]}>)"
            )


def launching_headers(text: str, available: Path, installed: Path) -> bool:
    """Whether `text` includes a torch GPU header that launches kernels.

    Headers included by it count too.

    Such a header is `installed` but not `available`. It can't compile, because nothing translates it.
    """
    waiting = [
        name for name in _INCLUDE.findall(text) if _family(name, _HEADER_FAMILIES) and not (available / name).exists()
    ]
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
        if family := _family(match[3], _HEADER_FAMILIES):
            yield MissingConstruct(file=match[1], line=int(match[2]), construct=f"{family} (#include <{match[3]}>)")
    for match in _UNKNOWN_NAME.finditer(log):
        owner = match[4] or match[6]
        within = (owner or "") + (match[5] or match[7] or "")
        if owner in _IN_PARTS:
            family, name = _family(owner, _NAME_FAMILIES), f"{owner}::{match[3]}"
        elif owner in ("at", "c10") and _lacks(within, match[3]):
            family, name = "this part of torch", f"{within}::{match[3]}"
        else:
            family, name = _family(match[3], _NAME_FAMILIES), match[3]
        if family is not None and ((owner in _IN_PARTS and in_parts) or match[3] not in _names(available)):
            yield MissingConstruct(file=match[1], line=int(match[2]), construct=f"{family} ({name})")
    for match in _OF_AN_OBJECT.finditer(log):
        if _OF_ITS_ALLOCATOR.fullmatch(match[3]):
            construct = f"this part of torch (c10::cuda::CUDACachingAllocator::get()->{match[3]})"
            yield MissingConstruct(file=match[1], line=int(match[2]), construct=construct)
    for match in _PARTIAL.finditer(log):
        library, owner, name = (match[i] or match[i + 3] for i in (3, 4, 5))
        construct = f"{_family(library, _NAME_FAMILIES)} ({library}::{owner}::{name} with these arguments)"
        yield MissingConstruct(file=match[1], line=int(match[2]), construct=construct)
    for match in _OVERLOAD.finditer(log):
        construct = f"{_family('thrust', _NAME_FAMILIES)} (thrust::{match[3]} with these arguments)"
        yield MissingConstruct(file=match[1], line=int(match[2]), construct=construct)
    for match in _REFUSED.finditer(log):
        yield MissingConstruct(
            file=match[1], line=int(match[2]), construct=f"{_family(match[3], _NAME_FAMILIES)} ({match[4].strip()})"
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
        family = _family(name, _NAME_FAMILIES) or "this part of torch"
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


def _lacks(namespace: str, name: str) -> bool:
    """Whether torch has that name in one of its CUDA namespaces."""
    if namespace in ("at::cuda", "c10::cuda"):
        return _OF_TORCH.fullmatch(name) is not None
    return namespace == "c10::cuda::CUDACachingAllocator" and _OF_ITS_ALLOCATOR.fullmatch(name) is not None


def _family(name: str, families: Iterable[tuple[re.Pattern[str], str]]) -> str | None:
    return next((family for pattern, family in families if pattern.fullmatch(name)), None)
