"""Calls of `load_inline` and `load` as people write them, and what is read out of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.utils.cpp_extension as extension

from harness.toolchain import ExtensionSpec
from harness.untrusted.builder.load_inline_calls import Unforeseen, bind, read_files, read_inline


def older_load_inline(
    name: str,
    cpp_sources: Any,
    cuda_sources: Any = None,
    functions: Any = None,
    extra_cflags: Any = None,
    extra_cuda_cflags: Any = None,
    extra_ldflags: Any = None,
    extra_include_paths: Any = None,
    build_directory: Any = None,
    verbose: Any = False,
    with_cuda: Any = None,
    is_python_module: Any = True,
    with_pytorch_error_handling: Any = True,
    keep_intermediates: Any = True,
    use_pch: Any = False,
) -> None:
    """The parameters of torch 2.6's function."""


def inline(*args: Any, original: Callable[..., Any] = extension.load_inline, **kwargs: Any) -> ExtensionSpec:
    return read_inline(bind(original, args, kwargs))


def test_one_text_or_several() -> None:
    assert inline("e", "a").cpp_sources == ("a",)
    assert inline("e", ["a", "b"], ("c",)).cuda_sources == ("c",)
    assert inline("e", "", "c").cpp_sources == ("",)
    assert inline("e", "a", cuda_sources=None).cuda_sources == ()


def test_functions_as_text_list_and_mapping() -> None:
    assert inline("e", "a", functions="f").functions == (("f", "f"),)
    assert inline("e", "a", functions=["f", "g", "f"]).functions == (("f", "f"), ("g", "g"))
    assert inline("e", "a", functions={"f": "doc"}).functions == (("f", "doc"),)
    assert inline("e", "a").functions is None


def test_functions_as_a_tuple_fail_as_in_torch() -> None:
    with pytest.raises(ValueError, match="Expected 'functions' to be a list or dict"):
        inline("e", "a", functions=("f",))


def test_an_empty_name_is_one_to_torch_and_gets_another_here() -> None:
    assert inline("", "a").name == "unnamed"


def test_odd_flags_are_kept() -> None:
    spec = inline("e", "a", extra_cuda_cflags=[""], extra_ldflags=[""], extra_cflags=["-O3 ", "-march=native"])
    assert (spec.extra_cuda_cflags, spec.extra_ldflags) == (("",), ("",))
    assert spec.extra_cflags == ("-O3", "-march=native")
    # torch iterates over a plain string; what comes of it is what comes of it there.
    assert inline("e", "a", extra_cflags="-O3").extra_cflags == ("-", "O", "3")


@pytest.mark.parametrize("given", [None, True, False])
def test_with_cuda_stays_undecided_where_it_was(given: bool | None) -> None:
    assert inline("e", "a", with_cuda=given).with_cuda is given


def test_where_and_how_loudly_does_not_matter() -> None:
    assert inline("e", "a", build_directory="/nowhere", verbose=True) == inline("e", "a")


def test_arguments_by_position_mean_what_they_mean_in_this_torch() -> None:
    spec = inline("e", "a", "c", ["f"], original=older_load_inline)
    assert spec.functions == (("f", "f"),)
    assert spec.cuda_sources == ("c",)


def test_arguments_of_another_torch_are_left_out() -> None:
    newer = {"no_implicit_headers": True, "sycl_sources": None, "with_sycl": False, "extra_sycl_cflags": None}
    assert inline("e", "a", original=older_load_inline, **newer) == inline("e", "a")


def test_arguments_of_no_torch_fail_as_in_torch() -> None:
    with pytest.raises(TypeError, match="extra_cuda_flags"):
        inline("e", "a", extra_cuda_flags=["-O3"])
    with pytest.raises(TypeError, match="cpp_sources"):
        inline("e", cuda_sources="c")


def load_inline_with_sycl(name: str, cpp_sources: Any, sycl_sources: Any = None, with_sycl: Any = None) -> None:
    """Of torch 2.7's parameters, those that matter here."""


@pytest.mark.parametrize("given", [{"sycl_sources": "s"}, {"with_sycl": True}])
def test_sycl_is_left_to_torch(given: dict[str, Any]) -> None:
    with pytest.raises(Unforeseen, match="SYCL"):
        inline("e", "a", original=load_inline_with_sycl, **given)
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        inline("e", "a", original=older_load_inline, **given)
    known = set(given) <= set(inspect.signature(extension.load_inline).parameters)
    with pytest.raises(Unforeseen if known else TypeError):
        inline("e", "a", **given)


def test_too_much_is_left_to_torch() -> None:
    with pytest.raises(Unforeseen, match="bytes of sources"):
        inline("e", "a" * 5_000_000)


def test_an_architecture_set_by_the_solution_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inline("e", "a").cuda_arch_list is None
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    assert inline("e", "a").cuda_arch_list == "9.0a"


def test_files_are_read_with_the_headers_beside_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.cu").write_text('#include "k.h"')
    (tmp_path / "k.h").write_text("int f();")
    (tmp_path / "notes.txt").write_text("not a header")
    spec = read_files(bind(extension.load, ("e", [str(tmp_path / "k.cu")]), {}))
    assert spec.compiled == ("k.cu",)
    assert [file.path for file in spec.files] == ["k.cu", "k.h"]
    assert spec.uses_cuda


def test_an_include_folder_of_the_solution_travels_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "x.cuh").write_text("int x;")
    spec = inline("e", "a", extra_include_paths=[str(tmp_path), "/usr/include/c++"])
    assert spec.extra_include_paths == ("include0", "/usr/include/c++")
    assert [file.path for file in spec.files] == ["include0/deep/x.cuh"]


def test_equal_files_elsewhere_are_the_same_extension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    specs = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "k.cpp").write_text("int f();")
        specs.append(read_files(bind(extension.load, ("e", str(folder / "k.cpp")), {})))
    assert specs[0].digest == specs[1].digest


def test_a_missing_file_is_left_to_torch(tmp_path: Path) -> None:
    with pytest.raises(Unforeseen, match="No such file"):
        read_files(bind(extension.load, ("e", str(tmp_path / "none.cpp")), {}))
