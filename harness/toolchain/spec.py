"""One call of `load_inline` or `load` as a value with a content address.

Both sides. The untrusted side writes specifications; the trusted side reads them with `ExtensionSpec.from_json`, which
checks everything. Flags are text that reaches a shell only inside a sandbox.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from pathlib import PurePosixPath
from typing import NamedTuple

from harness.core.json_value import JsonObject, from_json
from harness.core.problem import digest_text

MAX_EXTENSIONS = 64
"""Most extensions of one solution that are built ahead; further ones are built in the contestant."""

MAX_SOURCE_BYTES = 4 * 2**20
"""Limit of all text of one extension. Generated kernels have tens of kB; 4 MB is a whole library."""

MAX_AHEAD_BYTES = MAX_SOURCE_BYTES
"""Limit of all extensions of one solution that are built ahead, as JSON; the rest is built in the contestant. One
process reads the specifications of all solutions: sixty of 4 MB each made the others' builds ten times as slow."""

MAX_FILES = 128
"""Most files of one extension."""

MAX_FLAGS = 256
MAX_FLAG_CHARS = 4096
MAX_FUNCTIONS = 4096
MAX_NAME_CHARS = 200

_SURROGATES = re.compile("[\ud800-\udfff]")

_CUDA_SUFFIXES = (".cu", ".cuh")
"""Suffixes that torch's `_is_cuda_file` accepts."""

_UNADDRESSED = ("keep_intermediates", "use_pch")
"""Fields that do not change the built module."""


class SpecError(ValueError):
    """The value is not a valid specification, or exceeds a limit."""


class SourceFile(NamedTuple):
    """A file of an extension: path relative to the build folder, and text."""

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionSpec(JsonObject):
    """The normalised arguments of one call of `load_inline` or `load`.

    Relative entries of `extra_include_paths` are folders in `files`, named `include0`, `include1`, ...: no other name
    is allowed, so that no folder can replace a file that the build writes.

    Attributes:
        name: Name of the extension.
        cpp_sources: C++ texts (`load_inline`).
        cuda_sources: CUDA texts (`load_inline`).
        functions: Name and docstring of each function to bind; None if no bindings are generated.
        files: Source files and headers (`load`), and headers of include folders.
        compiled: Paths of the files that are compiled (`load`).
        extra_cflags: Flags for g++.
        extra_cuda_cflags: Flags for nvcc.
        extra_ldflags: Flags for the linker.
        extra_include_paths: Include folders.
        cuda_arch_list: The solution's own value of `TORCH_CUDA_ARCH_LIST`, if it set one.
        with_cuda: Whether to use CUDA; None lets the sources decide, as torch does.
        is_python_module: Whether the module is imported; otherwise it is only loaded.
        with_pytorch_error_handling: Whether bindings translate torch's exceptions.
        no_implicit_headers: Whether torch's usual `#include` lines are left out.
        keep_intermediates: As in torch; without effect here.
        use_pch: As in torch; without effect here.
    """

    name: str
    cpp_sources: tuple[str, ...] = ()
    cuda_sources: tuple[str, ...] = ()
    functions: tuple[tuple[str, str], ...] | None = None
    files: tuple[SourceFile, ...] = ()
    compiled: tuple[str, ...] = ()
    extra_cflags: tuple[str, ...] = ()
    extra_cuda_cflags: tuple[str, ...] = ()
    extra_ldflags: tuple[str, ...] = ()
    extra_include_paths: tuple[str, ...] = ()
    cuda_arch_list: str | None = None
    with_cuda: bool | None = None
    is_python_module: bool = True
    with_pytorch_error_handling: bool = True
    no_implicit_headers: bool = False
    keep_intermediates: bool = True
    use_pch: bool = False

    def __post_init__(self) -> None:
        if not self.name or len(self.name) > MAX_NAME_CHARS or not _is_text(self.name) or "\n" in self.name:
            raise SpecError(f"the name of an extension must be one short line of text, not {self.name!r:.80}")
        if not (self.cpp_sources or self.cuda_sources or self.compiled):
            raise SpecError(f"extension {self.name!r} has no sources")
        if self.compiled and (self.cpp_sources or self.cuda_sources):
            raise SpecError(f"extension {self.name!r} has both source texts and source files; only one is allowed")
        if any(_SURROGATES.search(text) for text in (*self.cpp_sources, *self.cuda_sources)):
            # Texts of files are read and written as bytes; torch would write these as UTF-8.
            raise SpecError(f"extension {self.name!r} has an unpaired surrogate in a text, which can't be encoded")
        if (size := sum(len(text.encode("utf-8", "surrogatepass")) for text in self.texts())) > MAX_SOURCE_BYTES:
            raise SpecError(f"extension {self.name!r} has {size} bytes of sources; the limit is {MAX_SOURCE_BYTES}")
        arches = () if self.cuda_arch_list is None else (self.cuda_arch_list,)
        for flags in (
            self.extra_cflags,
            self.extra_cuda_cflags,
            self.extra_ldflags,
            self.extra_include_paths,
            arches,
        ):
            if len(flags) > MAX_FLAGS or any(len(flag) > MAX_FLAG_CHARS or not _is_text(flag) for flag in flags):
                raise SpecError(
                    f"extension {self.name!r} has more than {MAX_FLAGS} flags, "
                    f"one of more than {MAX_FLAG_CHARS} characters, or one with characters that can't be written"
                )
        functions = self.functions or ()
        if len(functions) > MAX_FUNCTIONS or not all(_is_text(text) for pair in functions for text in pair):
            raise SpecError(
                f"extension {self.name!r} binds more than {MAX_FUNCTIONS} functions, or a name that can't be written"
            )
        paths = [file.path for file in self.files]
        if len(paths) > MAX_FILES:
            raise SpecError(f"extension {self.name!r} has {len(paths)} files; the limit is {MAX_FILES}")
        folders = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
        if any(not _is_inside(path) for path in paths) or len(set(paths)) != len(paths) or folders & set(paths):
            raise SpecError(f"extension {self.name!r} has files outside its folder, or two files of one name")
        if not set(self.compiled) <= set(paths):
            raise SpecError(f"extension {self.name!r} compiles files that are not among its files")

    def texts(self) -> tuple[str, ...]:
        """Return all source texts."""
        return (*self.cpp_sources, *self.cuda_sources, *(file.text for file in self.files))

    @property
    def size_bytes(self) -> int:
        """Size of the specification as JSON."""
        return len(json.dumps(self.to_json()))

    @property
    def uses_cuda(self) -> bool:
        """Whether torch would add CUDA's headers and libraries."""
        if self.with_cuda is not None:
            return self.with_cuda
        return self.has_cuda_sources

    @property
    def has_cuda_sources(self) -> bool:
        """Whether nvcc has anything to compile."""
        return bool(self.cuda_sources) or any(is_cuda_file(path) for path in self.compiled)

    @property
    def digest(self) -> str:
        """SHA-256 of all fields that change the built module."""
        value = {key: held for key, held in self.to_json().items() if key not in _UNADDRESSED}
        return digest_text("extension", json.dumps(value, sort_keys=True))

    def key(self, fingerprint: str) -> str:
        """Return the content address of the module that a toolchain builds from this."""
        return digest_text("built extension", self.digest, fingerprint)

    @classmethod
    def from_json(cls, value: object) -> ExtensionSpec:
        """Check and read a specification.

        Raises:
            SpecError: It is not a valid specification.
        """
        if type(value) is not dict or set(value) != {item.name for item in fields(cls)}:
            raise SpecError("not the fields of an extension specification")
        try:
            return from_json(value, cls)
        except ValueError as error:
            raise SpecError(f"not an extension specification: {error}") from error


def _is_text(text: str) -> bool:
    """Whether a text can be written to files: no NUL, no unpaired surrogate."""
    return "\0" not in text and not _SURROGATES.search(text)


def is_cuda_file(path: str) -> bool:
    """Whether torch would give this file to nvcc."""
    return PurePosixPath(path).suffix in _CUDA_SUFFIXES


def _is_inside(path: str) -> bool:
    """Whether a relative path stays in its folder and avoids the harness's own files.

    Those begin with a dot. A source file may have the name of a build file; a folder may not.
    """
    plain = re.fullmatch(r"(?:include\d+/(?:\w[\w.+-]*/)*)?\w[\w.+-]*", path, re.ASCII) is not None
    return plain and len(path) <= MAX_NAME_CHARS
