"""Sizes: constants read without running a file, workloads put in, expressions evaluated."""

from __future__ import annotations

import ast
import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.catalog.sizes import UNKNOWN, SizeError, apply_sizes, check_size, constants, evaluate

FILE = """\
import math

M = 1024 * 2
K, N = 3, M // 2
shape = (M, 4)
sizes = [1, 2]
ratio: float = 1 / 4
root = math.sqrt(M)
label = "text"
unset: int
M2 = M
if ratio > 0:
    inside = 7
else:
    inside = 8
for step in range(2):
    last = 5
K += 1


class Model:
    hidden = 1


def get_inputs():
    local = 2
    return [M, K, N, shape, sizes, M2, inside]
"""


def run(source: str, **sizes: Any) -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(compile(apply_sizes(ast.parse(source), sizes), "file.py", "exec"), space)
    return space


def test_constants_are_read_without_running() -> None:
    found = constants(ast.parse(FILE))
    assert found["M"] == found["M2"] == 2048
    assert found["N"] == 1024
    assert found["shape"] == (2048, 4)
    assert found["sizes"] == [1, 2]
    assert found["ratio"] == 0.25
    assert found["label"] == "text"
    assert found["last"] == 5
    assert found["root"] is UNKNOWN
    assert found["K"] is UNKNOWN
    assert not {"hidden", "local", "Model", "math", "unset", "step"} & found.keys()


def test_derived_constants_follow() -> None:
    space = run(FILE, M=6)
    assert (space["M"], space["N"], space["shape"], space["M2"]) == (6, 3, (6, 4), 6)
    assert space["root"] == pytest.approx(6**0.5)


def test_every_way_to_assign_is_overridden() -> None:
    space = run(FILE, K=11, N=13, ratio=0.5, inside=2, last=9, shape=[1, 2], sizes=[3], label="other")
    assert (space["K"], space["N"], space["ratio"], space["inside"], space["last"]) == (11, 13, 0.5, 2, 9)
    assert space["shape"] == (1, 2)
    assert space["sizes"] == [3]
    assert space["label"] == "other"
    assert space["get_inputs"]()[1] == 11


def test_nothing_changes_without_sizes_and_lines_stay() -> None:
    assert ast.dump(apply_sizes(ast.parse(FILE), {})) == ast.dump(ast.parse(FILE))
    source = "M = 1\nN = 2\nraise ValueError(N)\n"
    with pytest.raises(ValueError, match="5") as caught:
        run(source, M=4, N=5)
    assert caught.tb.tb_next is not None
    assert caught.tb.tb_next.tb_next is not None
    assert caught.tb.tb_next.tb_next.tb_lineno == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [("Q", 1), ("M", "1"), ("M", 1.5), ("M", True), ("M", None), ("M", {}), ("shape", 3), ("ratio", float("inf"))],
)
def test_sizes_that_do_not_fit_are_refused(name: str, value: object) -> None:
    with pytest.raises(SizeError, match=name):
        check_size(name, value, constants(ast.parse(FILE)))


@pytest.mark.parametrize(("name", "value"), [("M", 3), ("ratio", 1), ("shape", [1, 2]), ("root", 2), ("label", "")])
def test_sizes_that_fit_are_accepted(name: str, value: object) -> None:
    check_size(name, value, constants(ast.parse(FILE)))


def test_expressions() -> None:
    names = {"M": 3, "N": 4, "s": "x", "u": UNKNOWN}
    assert evaluate("2 * M * N", names) == 24
    assert evaluate(" (M + N) ** 2 // 3 - -1 % 5 / 4 ", names) == (3 + 4) ** 2 // 3 - (-1 % 5) / 4
    assert evaluate("1e9", names) == 1e9
    for wrong in (
        "M *",
        "Q",
        "M - 3",
        "-M",
        "1 / 0",
        "9 ** 9 ** 9 ** 9",
        "M.real",
        "f(M)",
        "[M]",
        "s",
        "u",
        "True",
        "M if M else N",
        "10 ** 64 * 10 ** 64 * 10 ** 64 * 10 ** 64 * 10 ** 64",
        "",
        "+".join(["1"] * 100_000),
    ):
        with pytest.raises(SizeError):
            evaluate(wrong, names)


@given(st.text(max_size=30))
def test_any_expression_is_evaluated_or_refused(text: str) -> None:
    with contextlib.suppress(SizeError):
        assert evaluate(text, {"M": 3}) > 0
