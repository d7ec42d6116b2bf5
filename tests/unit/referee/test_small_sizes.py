"""Derived sizes: cached by the digest, tried with data, and a reason in words if there are none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli.app import main
from harness.core.config import CACHE_LIMIT_BYTES
from harness.core.problem import Problem, Workload, digest_text
from harness.referee.small_sizes import NoSmallSizes, SmallSizes
from tests.unit.referee.problem.test_derive import HEAD, PRODUCT

SOLUTION = HEAD + "class ModelNew(nn.Module):\n    def forward(self, a, b):\n        return a @ b\n"


def problem(text: str) -> Problem:
    source = HEAD + text
    return Problem(id="level1/1", name="x", path=Path("1_x.py"), source=source, digest=digest_text(source))


def test_sizes_are_derived_once_and_found_in_the_cache_afterwards(tmp_path: Path) -> None:
    misses: list[int] = []
    with SmallSizes(tmp_path, CACHE_LIMIT_BYTES) as first:
        derived = first.of(problem(PRODUCT), on_miss=lambda: misses.append(1))
        assert first.of(problem(PRODUCT), on_miss=lambda: misses.append(1)) == derived
    with SmallSizes(tmp_path, CACHE_LIMIT_BYTES) as second:
        assert second.of(problem(PRODUCT), on_miss=lambda: misses.append(2)) == derived
    assert misses == [1]
    assert derived.derived
    assert derived.title == "small (derived)"
    assert set(derived.sizes) == {"M", "K", "N"}


def test_a_declared_workload_is_left_as_it_is(tmp_path: Path) -> None:
    declared = Workload(name="small", sizes={"M": 7})
    held = replace(problem(PRODUCT), workloads={"full": Workload(name="full"), "small": declared})
    with SmallSizes(tmp_path, CACHE_LIMIT_BYTES) as small_sizes:
        assert small_sizes.of(held) is declared


def test_reasons_are_in_words_and_a_failing_import_comes_first(tmp_path: Path) -> None:
    inside = PRODUCT.replace("M, K", "4096, 8192").replace("K, N", "8192, 2048")
    kills = PRODUCT.replace("def get_inputs():", "def get_inputs():\n    import os; os._exit(0)")
    with SmallSizes(tmp_path, CACHE_LIMIT_BYTES) as small_sizes:
        with pytest.raises(NoSmallSizes, match="names at the top level"):
            small_sizes.of(problem(inside))
        with pytest.raises(NoSmallSizes, match="it ended the process that executed it"):
            small_sizes.of(problem(kills))
        with pytest.raises(NoSmallSizes, match=r"^the file fails on import") as raised:
            small_sizes.of(problem("import nothing_of_this_name\n"))
        assert "workload" not in str(raised.value)
        assert small_sizes.of(problem(PRODUCT)).sizes, "a new process answers after one was lost"


def folder(tmp_path: Path, *texts: str) -> Path:
    level = tmp_path / "problems" / "level1"
    level.mkdir(parents=True)
    for number, text in enumerate(texts, 1):
        (level / f"{number}_x.py").write_text(HEAD + text)
        solution = tmp_path / "solutions" / "ann" / "level1" / f"{number}_own.py"
        solution.parent.mkdir(parents=True, exist_ok=True)
        solution.write_text(SOLUTION)
    return tmp_path / "problems"


def test_a_problem_without_sizes_gets_a_record_and_the_others_are_judged(tmp_path: Path) -> None:
    inside = PRODUCT.replace("M, K", "4096, 8192").replace("K, N", "8192, 2048")
    root = folder(tmp_path, PRODUCT, inside, PRODUCT + "import nothing_of_this_name\n")
    call = ["eval", str(tmp_path / "solutions"), "--problems", str(root), "--device", "host", "--run-id", "r"]
    main([*call, "--out", str(tmp_path / "results")])
    lines = (tmp_path / "results" / "r" / "records.jsonl").read_text().splitlines()
    records = {item["problem"]: item for item in map(json.loads, lines)}
    assert len(records) == 3
    assert (records["level1/1"]["status"], records["level1/1"]["workload"]) == ("passed", "small")
    assert set(records["level1/1"]["evidence"]["derived_sizes"]) == {"M", "K", "N"}
    assert records["level1/2"]["status"] == "harness_error"
    assert "names at the top level" in records["level1/2"]["reason"]
    assert "nothing_of_this_name" in records["level1/3"]["reason"]


def test_the_command_writes_entries_that_the_catalog_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = folder(tmp_path, PRODUCT, PRODUCT.replace("M = 4096", "M = 8192"))
    declarations = root / "level1" / "workloads.yaml"
    declarations.write_text("# kept\nformat: 1\nproblems:\n  1:\n    workloads:\n      small: {M: 7, K: 5, N: 3}\n")
    assert main(["problems", "derive", "--problems", str(root), "--write"]) == 0
    assert "1 derived, 1 declare their own" in capsys.readouterr().err
    text = declarations.read_text()
    assert text.startswith("# kept\n")
    assert "small: {M: 7, K: 5, N: 3}" in text
    assert main(["problems", "show", "level1/2", "--problems", str(root), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert set(shown["workloads"]["small"]) == {"M", "K", "N"}
    assert [cost["derived"] for cost in shown["costs"]] == [False, False]


def test_an_entry_that_can_not_be_appended_leaves_the_file_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = folder(tmp_path, PRODUCT)
    declarations = root / "level1" / "workloads.yaml"
    before = "format: 1\nproblems: {1: {precision: fp32}}\n"
    declarations.write_text(before)
    assert main(["problems", "derive", "--problems", str(root), "--write"]) == 2
    assert "paste them by hand" in capsys.readouterr().err
    assert declarations.read_text() == before
    assert main(["problems", "show", "level1/1", "--problems", str(root)]) == 0
    shown = capsys.readouterr().out
    assert "workload small (derived)" in shown
    assert "small: {" in shown
