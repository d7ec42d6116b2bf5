"""The replaced `load_inline` and `load`: prebuilt modules, errors met again, and everything else built on the spot."""

from __future__ import annotations

import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.cpp_extension as extension

from harness.toolchain import ExtensionSpec
from harness.untrusted.builder.load_inline_calls import bind, read_inline
from harness.untrusted.contestant import load_inline

MODULE = """
#include <Python.h>
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "tiny", "made for a test", -1, nullptr};
PyMODINIT_FUNC PyInit_tiny(void) { return PyModule_Create(&module); }
"""
SOURCE = "int f();"


@pytest.fixture(autouse=True)
def torchs_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Both functions are put back after each test; folders to build in go with what the test wrote."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("load", "load_inline"):
        monkeypatch.setattr(extension, name, getattr(extension, name))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "tiny.cpp").write_text(MODULE)
    include = sysconfig.get_path("include")
    command = ["g++", "-shared", "-fPIC", f"-I{include}", "tiny.cpp", "-o", "module.so"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "module.so"


def spec_of(*args: Any, **kwargs: Any) -> ExtensionSpec:
    return read_inline(bind(extension.load_inline, args, kwargs))


def prebuilt(path: Path, *args: Any, **kwargs: Any) -> dict[str, Any]:
    spec = spec_of(*args, **kwargs)
    return {
        "digest": spec.digest,
        "name": spec.name,
        "path": str(path),
        "is_python_module": spec.is_python_module,
    }


def replace_original(monkeypatch: pytest.MonkeyPatch, name: str, result: object) -> list[dict[str, Any]]:
    """Put a recorder with torch's own parameters in the place of torch's function."""
    calls: list[dict[str, Any]] = []
    original = getattr(extension, name)

    def recorder(*args: Any, **kwargs: Any) -> object:
        calls.append(bind(original, args, kwargs))
        return result

    recorder.__signature__ = __import__("inspect").signature(original)  # type: ignore[attr-defined]
    monkeypatch.setattr(extension, name, recorder)
    return calls


def test_a_prebuilt_module_is_imported_under_its_name(built: Path) -> None:
    notes = load_inline.install([prebuilt(built, "tiny", SOURCE, functions=["f"])], fallback=False)
    module = extension.load_inline(name="tiny", cpp_sources=[SOURCE], functions="f", verbose=True)
    assert (module.__name__, module.__doc__, module.__file__) == ("tiny", "made for a test", str(built))
    assert notes == []


def test_the_same_call_gives_the_same_module(built: Path) -> None:
    load_inline.install([prebuilt(built, "tiny", SOURCE)], fallback=False)
    assert extension.load_inline("tiny", SOURCE) is extension.load_inline("tiny", SOURCE)


def test_every_way_of_importing_the_function(built: Path) -> None:
    load_inline.install([prebuilt(built, "tiny", SOURCE)], fallback=False)
    for code in (
        "from torch.utils.cpp_extension import load_inline\nm = load_inline('tiny', SOURCE)",
        "import torch.utils.cpp_extension as ext\nm = ext.load_inline('tiny', SOURCE)",
        "import torch\nm = torch.utils.cpp_extension.load_inline('tiny', SOURCE)",
        "from torch.utils import cpp_extension\nm = cpp_extension.load_inline('tiny', SOURCE)",
    ):
        scope: dict[str, Any] = {"SOURCE": SOURCE}
        exec(code, scope)
        assert scope["m"].__file__ == str(built)


def test_libraries_of_operators(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(torch.ops, "load_library", loaded.append)
    load_inline.install([prebuilt(built, "ops", SOURCE, is_python_module=False)], fallback=False)
    assert extension.load_inline("ops", SOURCE, is_python_module=False) == str(built)
    assert loaded == [str(built)]


def test_an_error_is_met_again_as_torch_raises_it() -> None:
    digest = spec_of("tiny", SOURCE).digest
    load_inline.install([{"digest": digest, "name": "tiny", "error": "cpp source 1, line 2: expected ;"}])
    with pytest.raises(RuntimeError, match=r"Error building extension 'tiny': cpp source 1, line 2: expected ;"):
        extension.load_inline("tiny", SOURCE)


def test_anything_else_is_built_by_torch_in_a_private_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = replace_original(monkeypatch, "load_inline", "torch's own")
    notes = load_inline.install([])
    found: Any = extension.load_inline("other", SOURCE, functions=["f"], build_directory="/root/forbidden")
    assert found == "torch's own"
    assert [call["name"] for call in calls] == ["other"]
    assert Path(calls[0]["build_directory"]).is_dir()
    assert notes[0] == "building other where the solution runs: not found by the discovery"
    assert notes[1].startswith("built other in ")


def test_files_are_found_by_their_content(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    calls = replace_original(monkeypatch, "load", "torch's own")
    spec = ExtensionSpec.from_json(
        ExtensionSpec(name="tiny", cpp_sources=("",)).to_json()
        | {"cpp_sources": [], "files": [["k.cpp", SOURCE]], "compiled": ["k.cpp"]}
    )
    load_inline.install([{"digest": spec.digest, "name": "tiny", "path": str(built), "is_python_module": True}])
    (tmp_path / "k.cpp").write_text(SOURCE)
    assert extension.load("tiny", [str(tmp_path / "k.cpp")]).__file__ == str(built)
    (tmp_path / "k.cpp").write_text(SOURCE + " ")
    found: Any = extension.load("tiny", [str(tmp_path / "k.cpp")])
    assert found == "torch's own"
    assert len(calls) == 1


def test_without_a_fallback_it_is_said() -> None:
    load_inline.install([], fallback=False)
    with pytest.raises(RuntimeError, match="was not built ahead"):
        extension.load_inline("other", SOURCE)


def test_a_builder_of_ones_own(built: Path) -> None:
    asked: list[ExtensionSpec] = []

    def build_here(spec: ExtensionSpec, folder: Path) -> Path:
        assert list(folder.iterdir()) == []
        asked.append(spec)
        return built

    notes = load_inline.install([], build_here=build_here)
    assert extension.load_inline("tiny", SOURCE).__file__ == str(built)
    assert [spec.name for spec in asked] == ["tiny"]
    assert len(notes) == 2


def test_wrong_calls_fail_as_in_torch() -> None:
    original: Callable[..., Any] = extension.load_inline
    load_inline.install([])
    replaced: Callable[..., Any] = extension.load_inline
    for args, kwargs in (
        (("e",), {}),
        (("e", "a"), {"cuda_flags": []}),
        (("e", "a"), {"functions": ("f",)}),
    ):
        with pytest.raises((TypeError, ValueError)) as ours:
            replaced(*args, **kwargs)
        with pytest.raises(ours.type):
            original(*args, **kwargs)
