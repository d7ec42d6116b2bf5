"""Mutation testing: where mutants are made, and what the table says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import mutants
from tests.support.mutants import Outcome

pytest.importorskip("cosmic_ray", reason="cosmic-ray is not installed; `pip install -e .[mutants]` makes this run")

SOURCE = """from dataclasses import dataclass

LIMIT = 3


@dataclass(frozen=True)
class A:
    x: int | None = None


def within(value: int) -> bool:
    return 0 < value and value <= LIMIT
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "module.py").write_text(SOURCE)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    return "module.py"


def test_constants_comparisons_and_conditions_are_changed_and_annotations_are_not(module: str) -> None:
    changes = [change for place in mutants.places(module) if (change := mutants.mutated(place)) is not None]
    assert {line for _, line, _, _ in changes} == {3, 12}
    after = {text for _, _, _, text in changes}
    assert {"LIMIT = 4", "return 0 < value or value <= LIMIT", "return 0 <= value and value <= LIMIT"} <= after
    assert all(text.count("\n") == SOURCE.count("\n") for text, _, _, _ in changes)


def test_the_table_counts_by_module_and_lists_survivors() -> None:
    kinds = ("killed", "killed", "timeout", "survived")
    rows = [
        Outcome(module="m.py", line=n, operator="x", before="a | b", after="c", outcome=o) for n, o in enumerate(kinds)
    ]
    page = mutants.table(rows)
    assert "| `m.py` | 4 | 3 | 75% |" in page
    assert page.endswith("| `m.py:3` | `a \\| b` | `c` |\n")
