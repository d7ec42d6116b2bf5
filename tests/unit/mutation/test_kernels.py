"""`tests/mutation/kernels.py`: the project's mutants, and samples of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from harness.core.choices import PrecisionClass
from tests.mutation import kernels, page

FILES = ("solutions/examples/naive/level1/23_three_passes.py", "solutions/examples/naive/level1/95_block_per_row.py")


def test_a_mutant_changes_one_place_of_its_file_and_no_line_of_the_rest() -> None:
    mutants = kernels.mutants_of(FILES[0])
    assert len({mutant.id for mutant in mutants}) == len(mutants) > 80
    text = kernels.content(FILES[0]).decode().splitlines()
    for mutant in mutants:
        changed = mutant.source().splitlines()
        different = [
            number for number, pair in enumerate(zip(text, changed, strict=True), start=1) if pair[0] != pair[1]
        ]
        assert different[0] == mutant.line()
        assert len(different) == 1
        compile(mutant.probed(), mutant.file, "exec")


def test_a_sample_is_even_over_operators_and_begins_with_the_smaller_one() -> None:
    small, large = kernels.sample(FILES, 20, seed=0), kernels.sample(FILES, 60, seed=0)
    assert large[:20] == small
    assert small != kernels.sample(FILES, 20, seed=1)
    assert max(Counter((mutant.file, mutant.operator) for mutant in small).values()) == 1


def test_chunks_hold_all_mutants_each_of_one_file() -> None:
    chosen = kernels.sample(FILES, 50, seed=0)
    groups = kernels.chunks(chosen, 16)
    assert sorted(mutant.id for group in groups for mutant in group) == sorted(mutant.id for mutant in chosen)
    assert all(len({mutant.file for mutant in group}) == 1 and len(group) <= 16 for group in groups)


def test_every_sound_solution_has_mutants_and_a_problem() -> None:
    files = kernels.kernel_files()
    assert len(files) > 90
    assert {kernels.problem_of(file).id for file in files} >= {"level1/23", "level2/116", "level3/109"}


SMALL = [file for file in kernels.kernel_files() if file.endswith(".cu")]


@pytest.mark.parametrize("file", SMALL)
def test_the_reference_of_every_small_kernel_computes_its_outputs(file: str) -> None:
    space: dict[str, Any] = {}
    exec(kernels.problem_of(file).source, space)
    with torch.no_grad():
        outputs = space["Model"]()(*space["get_inputs"]())
    assert outputs
    assert all(isinstance(output, torch.Tensor) for output in outputs)


def test_small_kernels_that_compute_with_16_bits_are_held_to_their_class() -> None:
    found = {file.rpartition("/")[2]: kernels.problem_of(file).precision for file in SMALL}
    assert {file: precision.value for file, precision in found.items() if precision is not PrecisionClass.FP32} == {
        "half2_dot.cu": "fp16",
        "rms_norm_half.cu": "fp16",
        "bfloat16_gelu.cu": "bf16",
    }


def test_the_page_counts_stages_and_lists_survivors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "_classes", lambda: (("f.py:*:7", page.EQUIVALENT, "shifts by the same"),))
    base = {
        "file": "f.py",
        "operator": "bound changed",
        "device": "host",
        "reached": True,
        "before": "a | b",
        "after": "c",
    }
    rows = [
        {
            "id": "f.py:sound",
            "file": "f.py",
            "operator": "sound",
            "status": "passed",
            "stage": "survived",
            "device": "host",
        },
        base | {"id": "f.py:x:1", "stage": "value"},
        base | {"id": "f.py:x:7", "stage": "survived"},
        base | {"id": "f.py:x:8", "stage": "survived"},
        base | {"id": "f.py:x:9", "stage": "survived", "reached": False},
        base | {"id": "g.py:x:1", "file": "g.py", "stage": "survived"},
        {
            "id": "g.py:sound",
            "file": "g.py",
            "operator": "sound",
            "status": "not_emulated",
            "stage": "no verdict",
            "device": "host",
        },
    ]
    text = page.page(rows)
    assert "| bound changed | 4 | 0 | 1 | 0 | 0 | 0 | 0 | 0 | 3 | 0 | 1 | 1 | 0 | 33.3 % | 50.0 % |" in text
    assert "| `f.py:x:7` | `a \\| b` | `c` | equivalent | shifts by the same |" in text
    assert "| `f.py:x:9` | `a \\| b` | `c` | unreached |" in text
    assert "`g.py` (not_emulated)" in text
    again = [base | {"id": "f.py:x:8", "stage": "race"}]
    assert "| 3 | 0 | 1 | 1 | 1 | 66.7 % | 100.0 % |" in page.page(rows, again)
