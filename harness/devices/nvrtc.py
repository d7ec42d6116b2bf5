"""Compile the harness's own CUDA kernels at run time and launch them.

Trusted side: compiles only texts of this package, never of a submission. Without cuda-bindings or NVRTC there are no
kernels, and callers use torch's operations instead. Compiling takes 0.2 to 0.9 s for each text in each process;
`keep_images` sets a cache.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import torch

from harness.core.atomic_file import replace_whole

_DIGEST_BYTES = hashlib.sha256().digest_size


class KeptImages:
    """Cache of compiled kernels: files `kernels/KEY.cubin` below a folder.

    Each file has the SHA-256 of the image, then the image. A damaged file counts as absent. If the folder is not
    writable, the next process compiles again.
    """

    def __init__(self, cache_dir: Path) -> None:
        self._folder = cache_dir / "kernels"

    def held(self, key: str) -> bytes | None:
        try:
            told = self._path(key).read_bytes()
        except OSError:
            return None
        digest, image = told[:_DIGEST_BYTES], told[_DIGEST_BYTES:]
        return image if image and hashlib.sha256(image).digest() == digest else None

    def keep(self, key: str, image: bytes) -> None:
        with suppress(OSError):
            replace_whole(self._path(key), hashlib.sha256(image).digest() + image)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.cubin"


Argument = tuple[Any, Any]
"""A kernel's argument: its value and its ctypes type; a tensor is passed as its address."""

Launch = Callable[[tuple[int, int, int], int, Sequence[Argument]], None]
"""Starts the kernel: blocks of the grid, threads of a block, arguments."""


class Images(Protocol):
    """Cache of compiled kernels by keys of 64 hexadecimal digits; no method raises."""

    def held(self, key: str) -> bytes | None: ...

    def keep(self, key: str, image: bytes) -> None: ...


_images: Images | None = None


def keep_images(images: Images | None) -> None:
    """Set the cache of compiled kernels for this process."""
    global _images
    _images = images


def pointer(tensor: torch.Tensor) -> Argument:
    return tensor.data_ptr(), ctypes.c_void_p


def integer(value: int) -> Argument:
    """Pass a `long long`."""
    return value, ctypes.c_longlong


def number(value: float) -> Argument:
    """Pass a `double`."""
    return value, ctypes.c_double


def single(value: float) -> Argument:
    """Pass a `float`."""
    return value, ctypes.c_float


@lru_cache(maxsize=64)
def load(
    source: str, names: tuple[str, ...], device_index: int, definitions: tuple[str, ...] = ()
) -> list[Launch] | None:
    """Compile kernels of a CUDA text for one GPU.

    Makes the GPU's primary context current in this thread.

    Args:
        source: CUDA C++ text with `extern "C"` kernels.
        names: Names of the kernels.
        device_index: Index of the GPU.
        definitions: Macros ("NAME=VALUE").

    Returns:
        The kernels in the order of `names`, launched on torch's current stream; None if they cannot be compiled.
    """
    try:
        from cuda.bindings import driver

        torch.cuda.synchronize(device_index)  # torch creates the context, which loading needs, at its first work
        major, minor = torch.cuda.get_device_capability(device_index)
        words = (f"--gpu-architecture=sm_{major}{minor}", "--fmad=true", *(f"-D{text}" for text in definitions))
        module = _module(source, words)
        functions = [_checked(driver.cuModuleGetFunction(module, name.encode())) for name in names]
    except (ImportError, RuntimeError):
        return None

    def launcher(function: Any) -> Launch:
        def launch(blocks: tuple[int, int, int], threads: int, arguments: Sequence[Argument]) -> None:
            stream = torch.cuda.current_stream(device_index).cuda_stream
            values, types = zip(*arguments, strict=True)
            _checked(driver.cuLaunchKernel(function, *blocks, threads, 1, 1, 0, stream, (values, types), 0))

        return launch

    return [launcher(function) for function in functions]


def _module(source: str, words: tuple[str, ...]) -> Any:
    """Load the text into the current context, compiled or from the cache.

    Raises `ImportError` or `RuntimeError`.
    """
    from cuda.bindings import __version__, driver

    told = json.dumps([source, words, __version__, torch.version.cuda])
    key = hashlib.sha256(told.encode()).hexdigest()
    if _images is not None and (image := _images.held(key)) is not None:
        try:
            return _checked(driver.cuModuleLoadData(image))
        except RuntimeError:
            pass  # for example built by a compiler that is too new for this driver: compile again
    image = _compiled(source, words)
    module = _checked(driver.cuModuleLoadData(image))
    if _images is not None:
        _images.keep(key, image)
    return module


def _compiled(source: str, words: tuple[str, ...]) -> bytes:
    from cuda.bindings import nvrtc

    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), b"harness.cu", 0, [], []))
    options = [word.encode() for word in words]
    _checked(nvrtc.nvrtcCompileProgram(program, len(options), options))
    image: bytes = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program))
    _checked(nvrtc.nvrtcGetCUBIN(program, image))
    return image


def _checked(outcome: tuple[Any, ...]) -> Any:
    code, *values = outcome
    if int(code) != 0:
        raise RuntimeError(f"{type(code).__name__} {code.name}")
    return values[0] if len(values) == 1 else tuple(values)
