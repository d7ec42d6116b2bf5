"""Specifications: what is written is what is read, every field counts, and nothing hostile gets through."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from harness.toolchain import ExtensionSpec, SourceFile, SpecError
from harness.toolchain.spec import MAX_FILES, MAX_FLAG_CHARS, MAX_FLAGS, MAX_SOURCE_BYTES

INLINE = ExtensionSpec(
    name="ext",
    cpp_sources=("int f();",),
    cuda_sources=("int f() { return 1; }",),
    functions=(("f", "its doc"),),
    extra_cflags=("-O3", ""),
    cuda_arch_list="9.0a",
    with_cuda=True,
)
FILES = ExtensionSpec(
    name="ext",
    files=(SourceFile(path="a.cu", text="\ud800 odd"), SourceFile(path="include0/b.h", text="")),
    compiled=("a.cu",),
    is_python_module=False,
)


@pytest.mark.parametrize("spec", [INLINE, FILES])
def test_json_gives_the_same_specification_back(spec: ExtensionSpec) -> None:
    assert ExtensionSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


OTHERS: dict[str, Any] = {
    "name": "other",
    "cpp_sources": ("int f() ;",),
    "cuda_sources": (),
    "functions": (("f", "other doc"),),
    "extra_cflags": ("-O3",),
    "extra_cuda_cflags": ("-O3",),
    "extra_ldflags": ("-lm",),
    "extra_include_paths": ("/opt/include",),
    "cuda_arch_list": None,
    "with_cuda": None,
    "is_python_module": False,
    "with_pytorch_error_handling": False,
    "no_implicit_headers": True,
}


@pytest.mark.parametrize("field", OTHERS)
def test_what_decides_on_the_result_is_in_the_digest(field: str) -> None:
    assert replace(INLINE, **{field: OTHERS[field]}).digest != INLINE.digest


def test_what_does_not_is_not() -> None:
    assert replace(INLINE, keep_intermediates=False, use_pch=True).digest == INLINE.digest


def test_a_key_depends_on_the_toolchain() -> None:
    assert INLINE.key("g++ 12") != INLINE.key("g++ 13")
    assert INLINE.key("g++ 12") == replace(INLINE).key("g++ 12")


def test_boundaries_between_texts_count() -> None:
    split = replace(INLINE, cpp_sources=("int ", "f();"))
    assert split.digest != replace(INLINE, cpp_sources=("int f();", "")).digest


def test_cuda_is_found_as_torch_finds_it() -> None:
    assert FILES.uses_cuda
    assert replace(INLINE, with_cuda=None).uses_cuda
    assert not replace(INLINE, with_cuda=False).uses_cuda
    assert not replace(INLINE, with_cuda=None, cuda_sources=()).uses_cuda


def changed(**fields: Any) -> dict[str, Any]:
    return FILES.to_json() | fields


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {**INLINE.to_json(), "extra": 1},
        {key: held for key, held in INLINE.to_json().items() if key != "name"},
        changed(name=""),
        changed(name="a\nb"),
        changed(name=7),
        changed(name="a\ud800"),
        changed(extra_cflags=["-D\udfff"]),
        changed(extra_include_paths=["/\ud800"]),
        changed(functions=[["f", "\ud800"]]),
        changed(cpp_sources=["int f(); // \ud800"], files=[], compiled=[]),
        changed(compiled=["missing.cu"]),
        changed(compiled=[]),
        changed(files=[["../a.cu", ""]], compiled=["../a.cu"]),
        changed(files=[["/etc/a.cu", ""]], compiled=["/etc/a.cu"]),
        changed(files=[[".harness/build.ninja", ""], ["a.cu", ""]]),
        changed(files=[["a.cu", ""], ["a.cu/b.h", ""]]),
        changed(files=[["a.cu", ""], ["main.cpp/b.h", ""]]),
        changed(files=[["a.cu", ""], ["job.json/b.h", ""]]),
        changed(files=[["a.cu", ""], ["include/b.h", ""]]),
        changed(files=[["a.cu", ""], *([f"{number}.h", ""] for number in range(MAX_FILES))]),
        changed(files=[["a.cu", ""], ["a.cu", ""]]),
        changed(files=[["a b.cu", ""]], compiled=["a b.cu"]),
        changed(files=[["a.cu"]]),
        changed(files=[["a.cu", 1]]),
        changed(files={"a.cu": ""}),
        changed(extra_cflags="-O3"),
        changed(extra_cflags=[1]),
        changed(extra_cflags=["-O3"] * (MAX_FLAGS + 1)),
        changed(extra_ldflags=["x" * (MAX_FLAG_CHARS + 1)]),
        changed(extra_ldflags=["a\0b"]),
        changed(cuda_arch_list=9),
        changed(with_cuda=1),
        changed(is_python_module=None),
        changed(functions=[["f"]]),
        changed(functions="f"),
        changed(files=[["a.cu", "x" * (MAX_SOURCE_BYTES + 1)]]),
        changed(cpp_sources=["int f();"]),
    ],
)
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(SpecError):
        ExtensionSpec.from_json(value)
