"""What one call of `load_inline` or `load` asked for, as a value with a content address.

Imports the vocabulary only. Both sides of the trust boundary use it: the untrusted side writes specifications,
the trusted side reads them with `ExtensionSpec.from_json`, which trusts nothing. The flags in one are text that
never reaches a shell outside a sandbox.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from pathlib import PurePosixPath
from typing import Any

from harness.core.problem import digest_text

MAX_EXTENSIONS = 64
"""Most extensions of one solution that are built ahead; further ones are built in the contestant."""

MAX_SOURCE_BYTES = 4 * 2**20
"""All text of one extension together. Generated kernels are some ten kB; 4 MB is a whole library."""

MAX_AHEAD_BYTES = MAX_SOURCE_BYTES
"""All extensions of one solution that are built ahead, as JSON; what goes beyond is built in the contestant. The
process that reads it has everybody's builds to wait for: sixty of four megabytes each made others' take ten times as
long."""

MAX_FILES = 128
"""Most files of one extension: whoever builds it writes each of them."""

MAX_FLAGS = 256
MAX_FLAG_CHARS = 4096
MAX_FUNCTIONS = 4096
MAX_NAME_CHARS = 200

_SURROGATES = re.compile("[\ud800-\udfff]")

_CUDA_SUFFIXES = (".cu", ".cuh")
"""What torch takes for CUDA (`_is_cuda_file`)."""

_UNADDRESSED = ("keep_intermediates", "use_pch")
"""Fields that don't change what is built."""


class SpecError(ValueError):
    """Not the specification of an extension, or one beyond the limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file beside the build: its path relative to the build folder, and its text."""

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionSpec:
    """The arguments of one call, normalised. `with_cuda` is None where torch would decide by the sources.

    From `load_inline`: `cpp_sources`, `cuda_sources` and `functions` (name and docstring each; None where no
    bindings are to be generated). From `load`: `files`, of which those named in `compiled` are compiled and the
    rest are headers. Relative entries of `extra_include_paths` are folders of `files`, called `include` and a number:
    no other is made, where it would stand in the place of a file that the build writes. `cuda_arch_list` is what the
    solution had set `TORCH_CUDA_ARCH_LIST` to, if it did.
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
            raise SpecError(f"the name of an extension is one short line of text, not {self.name!r:.80}")
        if not (self.cpp_sources or self.cuda_sources or self.compiled):
            raise SpecError(f"extension {self.name!r} has no sources")
        if self.compiled and (self.cpp_sources or self.cuda_sources):
            raise SpecError(f"extension {self.name!r} has both texts and files")
        if any(_SURROGATES.search(text) for text in (*self.cpp_sources, *self.cuda_sources)):
            # Those of files are read and written as bytes; torch would write these as UTF-8.
            raise SpecError(f"extension {self.name!r} has half of a surrogate pair in a text, which can't be written")
        if (size := sum(len(text.encode("utf-8", "surrogatepass")) for text in self.texts())) > MAX_SOURCE_BYTES:
            raise SpecError(f"extension {self.name!r} has {size} bytes of sources; {MAX_SOURCE_BYTES} are accepted")
        arches = () if self.cuda_arch_list is None else (self.cuda_arch_list,)
        for flags in (
            self.extra_cflags,
            self.extra_cuda_cflags,
            self.extra_ldflags,
            self.extra_include_paths,
            arches,
        ):
            if len(flags) > MAX_FLAGS or any(len(flag) > MAX_FLAG_CHARS or not _is_text(flag) for flag in flags):
                raise SpecError(f"extension {self.name!r} has too many or too long flags, or some that are no text")
        functions = self.functions or ()
        if len(functions) > MAX_FUNCTIONS or not all(_is_text(text) for pair in functions for text in pair):
            raise SpecError(
                f"extension {self.name!r} binds more than {MAX_FUNCTIONS} functions, or some that are no text"
            )
        paths = [file.path for file in self.files]
        if len(paths) > MAX_FILES:
            raise SpecError(f"extension {self.name!r} has {len(paths)} files; {MAX_FILES} are accepted")
        folders = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
        if any(not _is_inside(path) for path in paths) or len(set(paths)) != len(paths) or folders & set(paths):
            raise SpecError(f"extension {self.name!r} has files outside its folder, or two of one name")
        if not set(self.compiled) <= set(paths):
            raise SpecError(f"extension {self.name!r} compiles files that it does not hold")

    def texts(self) -> tuple[str, ...]:
        """Every source text."""
        return (*self.cpp_sources, *self.cuda_sources, *(file.text for file in self.files))

    @property
    def size_bytes(self) -> int:
        """What a solution asks to have read with this: all of it, as JSON."""
        return len(json.dumps(self.to_json()))

    @property
    def uses_cuda(self) -> bool:
        """Whether torch would add CUDA's headers and libraries."""
        if self.with_cuda is not None:
            return self.with_cuda
        return self.has_cuda_sources

    @property
    def has_cuda_sources(self) -> bool:
        """Whether there is anything for nvcc."""
        return bool(self.cuda_sources) or any(is_cuda_file(path) for path in self.compiled)

    @property
    def digest(self) -> str:
        """SHA-256 of everything that decides what is built."""
        value = {key: held for key, held in self.to_json().items() if key not in _UNADDRESSED}
        return digest_text("extension", json.dumps(value, sort_keys=True))

    def key(self, fingerprint: str) -> str:
        """Content address of what a toolchain with that fingerprint makes of this."""
        return digest_text("built extension", self.digest, fingerprint)

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {}
        for item in fields(self):
            held = getattr(self, item.name)
            if item.name == "files":
                held = [[file.path, file.text] for file in held]
            elif item.name == "functions":
                held = None if held is None else [list(pair) for pair in held]
            elif isinstance(held, tuple):
                held = list(held)
            value[item.name] = held
        return value

    @classmethod
    def from_json(cls, value: object) -> ExtensionSpec:
        """Read a specification from anywhere. Raises `SpecError`."""
        if type(value) is not dict or set(value) != {item.name for item in fields(cls)}:
            raise SpecError("not the fields of an extension")
        functions = value["functions"]
        if type(value["name"]) is not str:
            raise SpecError("the name of an extension is text")
        if value["cuda_arch_list"] is not None and type(value["cuda_arch_list"]) is not str:
            raise SpecError("the list of architectures of an extension is text")
        texts: dict[str, Any] = {name: _texts(value[name]) for name in _TEXT_FIELDS}
        flags: dict[str, Any] = {name: _flag(value[name]) for name in _FLAG_FIELDS}
        return cls(
            name=value["name"],
            files=tuple(SourceFile(path=path, text=text) for path, text in _pairs(value["files"])),
            functions=None if functions is None else _pairs(functions),
            cuda_arch_list=value["cuda_arch_list"],
            with_cuda=None if value["with_cuda"] is None else _flag(value["with_cuda"]),
            **texts,
            **flags,
        )


_TEXT_FIELDS = (
    "cpp_sources",
    "cuda_sources",
    "compiled",
    "extra_cflags",
    "extra_cuda_cflags",
    "extra_ldflags",
    "extra_include_paths",
)
_FLAG_FIELDS = (
    "is_python_module",
    "with_pytorch_error_handling",
    "no_implicit_headers",
    "keep_intermediates",
    "use_pch",
)


def _is_text(text: str) -> bool:
    """Whether it can be written into a file or a command line: without half of a surrogate pair, and without a NUL."""
    return "\0" not in text and not _SURROGATES.search(text)


def is_cuda_file(path: str) -> bool:
    """Whether torch would give this file to nvcc."""
    return PurePosixPath(path).suffix in _CUDA_SUFFIXES


def _is_inside(path: str) -> bool:
    """Whether a relative path stays in its folder, and off the harness's own files there, which begin with a dot. A
    source may be called as one of these is, and then is what is built; a folder may not.
    """
    plain = re.fullmatch(r"(?:include\d+/(?:\w[\w.+-]*/)*)?\w[\w.+-]*", path, re.ASCII) is not None
    return plain and len(path) <= MAX_NAME_CHARS


def _texts(value: object) -> tuple[str, ...]:
    if type(value) is not list or any(type(item) is not str for item in value):
        raise SpecError("a field of an extension is a list of texts")
    return tuple(value)


def _pairs(value: object) -> tuple[tuple[str, str], ...]:
    if type(value) is not list or any(type(item) is not list or len(item) != 2 for item in value):
        raise SpecError("a field of an extension is a list of pairs")
    if any(type(text) is not str for item in value for text in item):
        raise SpecError("a field of an extension is a list of pairs of texts")
    return tuple((first, second) for first, second in value)


def _flag(value: object) -> bool:
    if type(value) is not bool:
        raise SpecError("a field of an extension is true or false")
    return value
