"""Read a call of torch's `load_inline` or `load` into an `ExtensionSpec`.

Untrusted side: runs in the solution's process, in the discovery and in the contestant. Equal calls must give equal
specifications. Reads only files that the solution wrote.
"""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.toolchain.spec import MAX_FILES, ExtensionSpec, SourceFile, SpecError

KEYWORDS_OF_SOME_TORCH = frozenset(
    {
        "extra_sycl_cflags",
        "is_standalone",
        "keep_intermediates",
        "no_implicit_headers",
        "sycl_sources",
        "use_pch",
        "with_pytorch_error_handling",
        "with_sycl",
    }
)
"""Arguments of some torch versions from 2.6 to 2.13. If this torch has no such argument, it is dropped."""

ARCH_VARIABLE = "TORCH_CUDA_ARCH_LIST"

_GIVEN_ARCH_LIST = os.environ.get(ARCH_VARIABLE)
"""The harness's own value, read before the solution runs; a solution often sets its own."""

_HEADER_SUFFIXES = frozenset({".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl", ".inc", ".ipp", ".tpp"})
_MAX_FILE_BYTES = 2**20


_UNNAMED = "unnamed"
"""torch accepts an empty extension name; a file needs one."""


class Unforeseen(Exception):
    """The call can't be built ahead; torch itself handles it when the solution runs."""


def bind(original: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Bind arguments by name as this torch's own function would, with its defaults.

    Raises the `TypeError` that the function itself would raise.
    """
    signature = inspect.signature(original)
    if not any(item.kind is item.VAR_KEYWORD for item in signature.parameters.values()):
        foreign = KEYWORDS_OF_SOME_TORCH - set(signature.parameters)
        # Dropping SYCL sources would change the build; kept, they fail here as they do in this torch.
        foreign -= {name for name in ("sycl_sources", "with_sycl") if kwargs.get(name)}
        kwargs = {name: value for name, value in kwargs.items() if name not in foreign}
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def read_inline(given: Mapping[str, Any]) -> ExtensionSpec:
    """Return the specification of a `load_inline` call from its bound arguments.

    Raises `ValueError` or `TypeError` if torch would, and `Unforeseen` if only torch itself can build it.
    """
    if given.get("sycl_sources") or given.get("with_sycl"):
        raise Unforeseen("SYCL sources")
    files = _SourceFiles()
    return _spec(
        name=_text(given["name"]) or _UNNAMED,
        cpp_sources=_sources(given["cpp_sources"]),
        cuda_sources=_sources(given.get("cuda_sources") or ()),
        functions=_functions(given.get("functions")),
        extra_include_paths=_include_paths(given, files),
        files=files.found(),
        with_pytorch_error_handling=bool(given.get("with_pytorch_error_handling", True)),
        no_implicit_headers=bool(given.get("no_implicit_headers", False)),
        use_pch=bool(given.get("use_pch", False)),
        **_common(given),
    )


def read_files(given: Mapping[str, Any]) -> ExtensionSpec:
    """Return the specification of a `load` call from its bound arguments.

    It contains the source files and the headers in their folders.

    Raises like `read_inline`.
    """
    if given.get("with_sycl") or given.get("is_standalone"):
        raise Unforeseen("SYCL sources or a standalone program")
    sources = given["sources"]
    paths = [Path(_text(item)) for item in ([sources] if isinstance(sources, (str, os.PathLike)) else sources)]
    files = _SourceFiles()
    compiled = []
    for path in paths:
        if not _is_private(path.absolute()):
            raise Unforeseen(f"{path} is not a file that the solution wrote")
        compiled.append(files.add(path, path.name))
        files.add_headers(path.parent, "")
    return _spec(
        name=_text(given["name"]) or _UNNAMED,
        compiled=tuple(compiled),
        extra_include_paths=_include_paths(given, files),
        files=files.found(),
        **_common(given),
    )


def _spec(**fields: Any) -> ExtensionSpec:
    try:
        return ExtensionSpec(**fields)
    except SpecError as error:
        raise Unforeseen(str(error)) from error


def _common(given: Mapping[str, Any]) -> dict[str, Any]:
    with_cuda = given.get("with_cuda")
    return {
        "extra_cflags": _flags(given.get("extra_cflags")),
        "extra_cuda_cflags": _flags(given.get("extra_cuda_cflags")),
        "extra_ldflags": _flags(given.get("extra_ldflags")),
        "cuda_arch_list": None if (arches := os.environ.get(ARCH_VARIABLE)) == _GIVEN_ARCH_LIST else arches,
        "with_cuda": None if with_cuda is None else bool(with_cuda),
        "is_python_module": bool(given.get("is_python_module", True)),
        "keep_intermediates": bool(given.get("keep_intermediates", True)),
    }


def _text(value: Any) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise Unforeseen(f"an argument is a {type(value).__name__} instead of text")
    return str(value)


def _sources(value: Any) -> tuple[str, ...]:
    return (str(value),) if isinstance(value, str) else tuple(_text(item) for item in value)


def _flags(value: Iterable[Any] | None) -> tuple[str, ...]:
    # torch iterates over any value, so a plain string is split into letters; so here.
    return tuple(_text(item).strip() for item in value or ())


def _functions(value: Any) -> tuple[tuple[str, str], ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        return ((value, value),)
    if isinstance(value, list):
        return tuple((name, name) for name in dict.fromkeys(_text(item) for item in value))
    if isinstance(value, dict):
        return tuple((_text(name), str(doc)) for name, doc in value.items())
    raise ValueError(f"Expected 'functions' to be a list or dict, but was {type(value)}")


def _include_paths(given: Mapping[str, Any], files: _SourceFiles) -> tuple[str, ...]:
    found = []
    for index, item in enumerate(_flags(given.get("extra_include_paths"))):
        path = Path(os.path.abspath(item))
        if _is_private(path):
            folder = f"include{index}"
            files.add_headers(path, folder)
            found.append(folder)
        else:
            found.append(str(path))
    return tuple(found)


def _is_private(path: Path) -> bool:
    """Whether a folder exists in this sandbox only, so that its files must be copied."""
    folders = (Path.cwd(), Path(tempfile.gettempdir()), Path.home())
    return any(path.is_relative_to(folder.resolve()) or path.is_relative_to(folder) for folder in folders)


class _SourceFiles:
    """Collects text files for a specification."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def found(self) -> tuple[SourceFile, ...]:
        return tuple(SourceFile(path=path, text=text) for path, text in sorted(self._texts.items()))

    def add(self, path: Path, name: str) -> str:
        if len(self._texts) >= MAX_FILES:
            raise Unforeseen(f"more than {MAX_FILES} files")
        try:
            with path.open("rb") as file:
                data = file.read(_MAX_FILE_BYTES + 1)
            text = data.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Unforeseen(f"{path}: {error}") from error
        if len(data) > _MAX_FILE_BYTES:
            raise Unforeseen(f"{path} is larger than {_MAX_FILE_BYTES} bytes")
        if self._texts.setdefault(name, text) != text:
            raise Unforeseen(f"two different files named {name}")
        return name

    def add_headers(self, folder: Path, prefix: str) -> None:
        if not _is_private(folder.absolute()):
            return
        for path in sorted(folder.glob("**/*" if prefix else "*")):
            if path.suffix in _HEADER_SUFFIXES and path.is_file():
                self.add(path, f"{prefix}/{path.relative_to(folder).as_posix()}".lstrip("/"))
