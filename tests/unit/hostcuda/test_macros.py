"""Macros of compiler flags, in the order in which a compiler takes them."""

from __future__ import annotations

import pytest

from harness.hostcuda.translate.macros import TORCH_SWITCHES, defines, is_switch, macros


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["-DSIZE=7", "-O3", "-DFAST"], {"SIZE": "7", "FAST": "1"}),
        (["-D", "SIZE=7", "-U", "FAST"], {"SIZE": "7", "FAST": None}),
        (["-DA=1", "-UA"], {"A": None}),
        (["-UA", "-DA=2"], {"A": "2"}),
        (["--define-macro=A=1", "--undefine-macro", "B"], {"A": "1", "B": None}),
        (["-Xcompiler=-DA=1,-DB"], {"A": "1", "B": "1"}),
        (["-DMAX(a,b)=((a)>(b)?(a):(b))"], {"MAX(a,b)": "((a)>(b)?(a):(b))"}),
        (["-DEMPTY="], {"EMPTY": ""}),
        (["-D1A", "-D"], {}),
    ],
)
def test_the_last_flag_of_a_name_counts(flags: list[str], expected: dict[str, str | None]) -> None:
    assert macros(flags) == expected


def test_a_solution_takes_torchs_switches_back() -> None:
    given = macros([*TORCH_SWITCHES, "-U__CUDA_NO_HALF_OPERATORS__", "-DSIZE=1"])
    switches = [name for name, value in given.items() if is_switch(name) and value is not None]
    assert switches == [
        "__CUDA_NO_HALF_CONVERSIONS__",
        "__CUDA_NO_BFLOAT16_CONVERSIONS__",
        "__CUDA_NO_HALF2_OPERATORS__",
    ]


def test_directives() -> None:
    given: dict[str, str | None] = {"A": "1", "EMPTY": "", "GONE": None, "MAX(a)": "a"}
    assert defines(given) == "#define A 1\n#define EMPTY\n#define MAX(a) a\n"


def test_the_switches_are_torchs_own() -> None:
    from torch.utils import cpp_extension

    assert set(TORCH_SWITCHES) <= set(cpp_extension.COMMON_NVCC_FLAGS)
