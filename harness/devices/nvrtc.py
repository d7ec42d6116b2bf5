"""CUDA kernels of the harness's own, compiled at run time for the GPU at hand and launched on torch's current stream.

Imports torch; cuda-bindings where it is installed. Trusted side: only texts of this package are compiled here, never
one of a submission. Without cuda-bindings or its run-time compiler there are no kernels, and callers do the same with
torch's operations.

Compiling takes 0.2 to 0.9 s a text, in each process anew: where `keep_images` names a place, what was compiled is kept.
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
    """Files `kernels/KEY.cubin` below a cache folder: the SHA-256 of the image, then the image. One that is cut off or
    was changed counts as none, and a folder that can't be written costs the next process its compiling, no more.
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
"""A kernel's argument: its value and its ctypes type; a tensor stands for its address."""

Launch = Callable[[tuple[int, int, int], int, Sequence[Argument]], None]
"""Starts the kernel: blocks of the grid, threads of a block, arguments."""


class Images(Protocol):
    """Where compiled texts are kept, by keys of 64 hexadecimal digits. Nothing of it raises."""

    def held(self, key: str) -> bytes | None: ...

    def keep(self, key: str, image: bytes) -> None: ...


_images: Images | None = None


def keep_images(images: Images | None) -> None:
    """Have what this process compiles from now on kept there, and taken from there."""
    global _images
    _images = images


def pointer(tensor: torch.Tensor) -> Argument:
    return tensor.data_ptr(), ctypes.c_void_p


def integer(value: int) -> Argument:
    """A `long long`."""
    return value, ctypes.c_longlong


def number(value: float) -> Argument:
    """A `double`."""
    return value, ctypes.c_double


def single(value: float) -> Argument:
    """A `float`."""
    return value, ctypes.c_float


@lru_cache(maxsize=64)
def load(
    source: str, names: tuple[str, ...], device_index: int, definitions: tuple[str, ...] = ()
) -> list[Launch] | None:
    """The kernels `names` (`extern "C"`) of a CUDA text, in this order, or None where they can't be had.

    `definitions` are macros ("NAME=VALUE"). The GPU's primary context becomes current in this thread.
    """
    try:
        from cuda.bindings import driver

        torch.cuda.synchronize(device_index)  # a module is loaded into a context, which torch makes at its first work
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
    """The text loaded into the current context, compiled with these options unless that was done before. Raises
    `ImportError` and `RuntimeError`.
    """
    from cuda.bindings import __version__, driver

    told = json.dumps([source, words, __version__, torch.version.cuda])
    key = hashlib.sha256(told.encode()).hexdigest()
    if _images is not None and (image := _images.held(key)) is not None:
        try:
            return _checked(driver.cuModuleLoadData(image))
        except RuntimeError:
            pass  # of a compiler whose code this driver does not take, say: it is made anew
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
