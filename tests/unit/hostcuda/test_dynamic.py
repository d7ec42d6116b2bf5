"""Dynamic shared arrays of one name and several types: what nvcc refuses, and what it does not. Nothing is compiled."""

from __future__ import annotations

import pytest

from harness.hostcuda.translate.dynamic import clashes


def kernel(name: str, declaration: str, head: str = "") -> str:
    return f"{head}__global__ void {name}(float* x) {{\n    extern __shared__ {declaration};\n    x[0] = s[0];\n}}\n"


@pytest.mark.parametrize(
    ("first", "second"), [("float s[]", "double s[]"), ("unsigned char s[]", "float4 s[]"), ("half s[]", "float s[]")]
)
def test_two_types_of_one_name_are_refused_with_the_line(first: str, second: str) -> None:
    (found,) = clashes(kernel("a", first) + kernel("b", second))
    assert (found.line, found.message) == (
        6,
        'declaration is incompatible with previous "s" (declared at line 2)',
    )


@pytest.mark.parametrize(
    "source",
    [
        kernel("a", "float s[]") + kernel("b", "float s[]"),
        kernel("a", "float s[]") + kernel("b", "double other[]"),
        kernel("a", "float s[]") + kernel("b", "real s[]"),
        kernel("a", "half s[]") + kernel("b", "__half s[]"),
        kernel("a", "float s[]") + kernel("b", "T s[]", "template <typename T> "),
        kernel("a", "float s[]") + kernel("b", "double s[]", "template <typename T> "),
        kernel("a", "float s[]") + "namespace n {\n" + kernel("b", "double s[]") + "}\n",
        "#if 0\n" + kernel("a", "float s[]") + "#endif\n" + kernel("b", "double s[]"),
        kernel("a", "float s[]") + "__global__ void b() { __shared__ double s[4]; s[0] = 1; }\n",
    ],
)
def test_what_may_be_one_variable_or_several_is_left_alone(source: str) -> None:
    assert clashes(source) == ()
