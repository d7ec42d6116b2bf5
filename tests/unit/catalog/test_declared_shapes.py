"""Ranges and lists of sizes in `workloads.yaml`: what they say, and how a wrong one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.catalog import load_problems
from harness.core.problem import ListedShape, ShapeRules, SizeRange
from tests.unit.catalog.test_catalog import PROBLEM, write


def declared(folder: Path, shapes: str) -> tuple[ShapeRules | None, str]:
    """The rules of a problem with this declaration, and why it can't be read."""
    write(folder / "level1/16_product.py", PROBLEM)
    write(folder / "level1/workloads.yaml", f"format: 1\nproblems:\n  16: {{shapes: {shapes}}}\n")
    held = load_problems(folder).known["level1/16"]
    return (held.shapes, "") if held.failure is None else (None, held.failure.reason)


def test_ranges(tmp_path: Path) -> None:
    rules, _ = declared(tmp_path, "{ranges: {N: [1, 512], M: [16, 256, 8]}}")
    assert rules == ShapeRules(ranges={"N": SizeRange(low=1, high=512), "M": SizeRange(low=16, high=256, step=8)})


def test_a_list_with_call_counts(tmp_path: Path) -> None:
    rules, _ = declared(tmp_path, "{list: [{sizes: {N: 8}, calls: 812}, {sizes: {N: 9, M: 3}}]}")
    assert rules is not None
    assert rules.listed == (ListedShape(sizes={"N": 8}, calls=812.0), ListedShape(sizes={"N": 9, "M": 3}, calls=1.0))


def test_the_declaration_is_part_of_the_digest(tmp_path: Path) -> None:
    digests = set()
    for number, shapes in enumerate(("{ranges: {N: [1, 512]}}", "{ranges: {N: [1, 513]}}")):
        declared(tmp_path / str(number), shapes)
        digests.add(load_problems(tmp_path / str(number))["level1/16"].digest)
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ("[1, 2]", "the key ranges or the key list and no other"),
        ("{range: {N: [1, 2]}}", "the key ranges or the key list and no other"),
        ("{ranges: {N: [1, 2]}, list: []}", "the key ranges or the key list and no other"),
        ("{ranges: {}}", "ranges must map constants of the file"),
        ("{ranges: {N: 5}}", "the range of N must be [lowest, highest]"),
        ("{ranges: {N: [5]}}", "not [5]"),
        ("{ranges: {N: [9, 5]}}", "not [9, 5]"),
        ("{ranges: {N: [0, 5]}}", "whole numbers from 1"),
        ("{ranges: {N: [1, 5, 0]}}", "whole numbers from 1"),
        ("{ranges: {N: [1, true]}}", "whole numbers from 1"),
        ("{ranges: {N: [1.5, 4]}}", "whole numbers from 1"),
        ("{ranges: {K: [1, 4]}}", "the file has no top-level constant K; it has M, N"),
        ("{list: {}}", "list must be a list of entries"),
        ("{list: []}", "list must be a list of entries"),
        ("{list: [7]}", "entry 1 of the list must be like"),
        ("{list: [{sizes: {}}]}", "entry 1 of the list must be like"),
        ("{list: [{sizes: {N: 4}, weight: 2}]}", "entry 1 of the list must be like"),
        ("{list: [{sizes: {N: 4}}, {sizes: {N: 5}, calls: 0}]}", "calls of entry 2 must be a number above 0"),
        ("{list: [{sizes: {N: 4}, calls: many}]}", "calls of entry 1 must be a number above 0, not 'many'"),
        ("{list: [{sizes: {N: 4}, calls: .nan}]}", "calls of entry 1 must be a number above 0"),
        ("{list: [{sizes: {K: 4}}]}", "entry 1 of the list: the file has no top-level constant K"),
        ("{list: [{sizes: {N: four}}]}", "the value must have type int"),
    ],
)
def test_a_wrong_declaration_says_what_to_write(tmp_path: Path, shapes: str, message: str) -> None:
    rules, why = declared(tmp_path, shapes)
    assert rules is None
    assert message in why
    assert "level1/workloads.yaml, problem 16" in why
