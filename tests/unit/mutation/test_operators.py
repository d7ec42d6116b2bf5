"""`tests/mutation/operators.py`: which mistakes are planted in a small source."""

from __future__ import annotations

import pytest

from tests.mutation.operators import OPERATORS, mutations


def planted(operator: str, body: str, head: str = "__global__ void k(const float* x, float* y, int n)") -> set[str]:
    """Return the bodies that an operator makes of a kernel's body."""
    source = f"{head} {{ {body} }}"
    made = [
        mutation.edit.applied(source.encode()).decode()
        for mutation in mutations(source.encode())
        if mutation.operator == operator
    ]
    return {text.removeprefix(head).strip().removeprefix("{").removesuffix("}").strip() for text in made}


@pytest.mark.parametrize(
    ("operator", "body", "after"),
    [
        ("barrier removed", "y[0] = 1; __syncthreads();", {"y[0] = 1; ;"}),
        ("barrier removed", "tile.sync();", {";"}),
        ("barrier removed", "cg::sync(tile);", {";"}),
        ("barrier removed", 'asm volatile("bar.sync 1, 64;");', {";"}),
        ("barrier removed", "tile.thread_rank();", set()),
        ("bound changed", "while (n < 3) go(n);", {"while (n <= 3) go(n);"}),
        ("bound dropped", "if (n < 3) go();", {"if (true) go();"}),
        ("bound dropped", "go(n < 3 && n > 1);", {"go(n < 3);", "go(n > 1);"}),
        ("bound dropped", "if constexpr (n < 3) go();", set()),
        ("mask narrowed", "__syncwarp(0xffffffff);", {"__syncwarp(0x7fffffffu);", "__syncwarp(0x0000ffffu);"}),
        ("index off by one", "go(x[n]);", {"go(x[(n) + 1]);", "go(x[(n) - 1]);"}),
        ("lower precision", "double d = 2;", {"float d = 2;"}),
        ("lower precision", "go(0.1f, 0.5f);", {"go(0.0999755859375f, 0.5f);"}),
        (
            "lower precision",
            "float s = 0; s += x[0];",
            {"float s = 0; s = __int_as_float(__float_as_int(s + (x[0])) & 0xffffe000);"},
        ),
        ("scale of 1.001", "y[n] = x[n];", {"y[n] = (x[n]) * 1.001f;"}),
        ("scale of 1.001", "n = 3;", set()),
        ("type narrowed", "long long i = n; int j = n;", {"int i = n; int j = n;", "long long i = n; short j = n;"}),
        ("fence or volatile dropped", "__threadfence();", {";"}),
        ("fence or volatile dropped", "volatile float v;", {"float v;"}),
        ("atomic dropped", "atomicAdd(&y[0], x[0]);", {"*(&y[0]) += x[0];"}),
        ("early return", "go();", {"if (threadIdx.x == 1) return; go();"}),
        ("wrong stride", "for (;; n += 4) go();", {"for (;; n += (4) + 1) go();"}),
        ("wrong stride", "for (;; ++n) go();", {"for (;; n += 2) go();"}),
        ("wrong stride", "go(x[i * n + j]);", {"go(x[i * (n + 1) + j]);"}),
        ("missing tail", "for (; i < n; ) go();", {"for (; i < n - 1; ) go();"}),
        ("missing tail", "go((n + 31) / 32);", {"go((n) / 32);"}),
        ("swapped operand", "go(a - b);", {"go(((b) - (a)));"}),
        ("swapped operand", "go(fmaxf(a, b));", {"go(fminf(a, b));"}),
        ("swapped operand", "go(a, b, c);", {"go(a, c, b);"}),
        ("swapped operand", "go(x[i][j]);", {"go(x[j][i]);"}),
    ],
)
def test_each_operator_makes_its_mistake_and_no_other(operator: str, body: str, after: set[str]) -> None:
    made = planted(operator, body)
    assert {text for text in made if operator != "type narrowed" or "n)" not in text} == after


def test_host_code_only_loses_tails_and_masks() -> None:
    source = b"void run(int n) { if (n < 3) k<<<(n + 255) / 256, 256>>>(x - 1, n); }"
    (tail,) = mutations(source)
    assert (tail.operator, tail.probe) == ("missing tail", ())
    assert b"<<<(n) / 256, 256>>>" in tail.edit.applied(source)


def test_each_changed_text_is_made_once_and_differs_from_the_source() -> None:
    source = b"__global__ void k(float* y, int n) { for (int i = 0; i < n; ++i) y[i - 1] = i < n && i > 0 ? 0.1f : 2; }"
    made = [mutation.edit.applied(source) for mutation in mutations(source)]
    assert source not in made
    assert len(made) == len(set(made)) > 10


def test_a_probe_traps_in_front_of_the_statement_with_the_mistake() -> None:
    source = b"__global__ void k(float* y, int n) { if (n) y[0] = 1; else { y[n] = 2; } }"
    (mutation,) = [each for each in mutations(source) if b"y[(n) + 1]" in each.edit.applied(source)]
    (trap,) = mutation.probe
    assert b"else { __trap(); y[n] = 2; }" in trap.applied(source)
    (first,) = [each for each in mutations(source) if b"y[(0) + 1]" in each.edit.applied(source)]
    opening, closing = first.probe
    assert b"if (n) { __trap(); y[0] = 1; } else" in opening.applied(closing.applied(source))


def test_no_operator_changes_assertions_or_code_that_can_not_be_parsed() -> None:
    source = b"__global__ void k(int n) { static_assert(sizeof(int) < 5); assert(n < 3); }"
    assert {mutation.operator for mutation in mutations(source)} <= {"type narrowed", "early return"}


def test_every_operator_is_named_in_the_cases_above() -> None:
    (cases,) = [
        mark for mark in test_each_operator_makes_its_mistake_and_no_other.pytestmark if mark.name == "parametrize"
    ]  # type: ignore[attr-defined]
    assert {case[0] for case in cases.args[1]} == set(OPERATORS)
