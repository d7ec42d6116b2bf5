"""The tuned solutions: named, explained, constructed like their references; some run here; README and run agree.

That all of them pass, and how fast they are, is in the committed run `results/h200`: no GPU is needed to check it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import readme_tables

from harness.api import Harness
from harness.catalog import find_authors, find_solutions, load_problems
from harness.model import Record, Solution, Status
from harness.reference import load_reference
from harness.scoring import entries_of

HERE = Path(__file__).parents[1]
CATALOG = load_problems(HERE / "problems")
TUNED = {held.label: held for held in find_solutions([HERE / "solutions" / "tuned"], CATALOG)}
TRITON = [label for label, held in TUNED.items() if "import triton" in held.source]
REACHED = re.compile(r"Reached on an H200: (\d+) % of the speed of light")


def idea_of(solution: Solution) -> str:
    return ast.get_docstring(ast.parse(solution.source)) or ""


def committed() -> list[Record]:
    if not (readme_tables.RUN / "records.jsonl").is_file():
        pytest.skip("results/h200 is not there yet")
    return [record for record in readme_tables.records_of(readme_tables.RUN) if record.author == "tuned"]


def test_the_author_introduces_itself() -> None:
    authors = find_authors(list(TUNED.values()))
    assert set(authors) == {"tuned"}
    assert authors["tuned"].notes


@pytest.mark.parametrize("label", TUNED)
def test_each_says_its_idea_its_bytes_and_its_flops(label: str) -> None:
    idea = idea_of(TUNED[label])
    assert len(idea.splitlines()) >= 3
    assert re.search(r"\b[Bb]ytes\b|\b[KMG]i?B\b", idea), "no word of the bytes that it moves"
    assert re.search(r"flop", idea, re.I), "no word of its flops"


@pytest.mark.parametrize("label", [label for label in TUNED if label not in TRITON])
def test_each_is_constructed_like_its_reference(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", lambda **request: calls.append(request))
    problem = CATALOG[TUNED[label].problem_id]
    reference = load_reference(problem, problem.workloads["small"])
    space: dict[str, Any] = {"__name__": "solution"}
    exec(compile(TUNED[label].source, label, "exec"), space)
    made = space["ModelNew"](*reference.init_inputs()).state_dict()
    wanted = reference.model(1, torch.device("cpu")).state_dict()
    assert {name: value.shape for name, value in made.items()} == {name: value.shape for name, value in wanted.items()}
    for request in calls:
        declared = request["cpp_sources"]
        assert all(re.search(rf"\b{name}\(", declared) for name in request["functions"])


def test_sizes_of_the_suite_are_in_no_source() -> None:
    """A solution is for any size: the number of rows or the length of a full workload is not one of its constants."""
    for label in ("tuned/level1/89_register_scan.py", "tuned/level1/23_slices_meet.py", "tuned/level2/134_one_read.py"):
        body = TUNED[label].source.split('CUDA = r"""')[1]
        problem = CATALOG[TUNED[label].problem_id]
        globals_of = re.findall(r"^\w+ = (\d+)$", problem.source, re.M)
        large = {number for number in globals_of if int(number) >= 1000}
        assert large
        assert not large & set(re.findall(r"\b\d+\b", body))


@pytest.mark.parametrize("label", ["tuned/level1/23_slices_meet.py", "tuned/level1/112_group_maxima.py"])
def test_two_of_them_pass_on_the_host_device(label: str) -> None:
    """One whose blocks wait for each other, one that sorts in shared memory."""
    with Harness(device="host") as harness:
        result = harness.evaluate(TUNED[label].problem_id, TUNED[label].path)
    assert result.status is Status.passed, result.reason


class TestTheCommittedRun:
    def test_every_solution_has_passed_as_it_is_now(self) -> None:
        latest = {entry.solution: entry for entry in entries_of(committed())}
        digests = {record.solution: record.solution_digest for record in committed()}
        for label, solution in TUNED.items():
            assert label in latest, f"{label} is not in results/h200"
            if "plain_cpp" not in label:
                assert latest[label].status is Status.passed, f"{label}: {latest[label].reason}"
            assert digests[label] == solution.digest, f"{label} was changed after the run"

    def test_the_readme_has_its_table(self) -> None:
        records = committed()
        text = readme_tables.README.read_text()
        if readme_tables.BEGIN not in text:
            pytest.skip("the README has no place for the table yet")
        assert readme_tables.replaced(text, readme_tables.table(records)) == text

    def test_comments_state_what_was_reached(self) -> None:
        """Within five percent points of the speed of light of the run."""
        latest = {entry.solution: entry for entry in entries_of(committed())}
        for label, solution in TUNED.items():
            stated = REACHED.search(idea_of(solution))
            if stated is None:
                continue
            fraction = latest[label].sol_fraction
            assert fraction is not None
            assert abs(fraction - int(stated[1]) / 100) <= 0.05, label


class TestTheTable:
    RECORDS = readme_tables.ROOT / "results" / "h200-examples"

    def test_of_another_run_it_says_that_nothing_is_there(self) -> None:
        with pytest.raises(readme_tables.TablesError, match="no record of a tuned solution"):
            readme_tables.table(readme_tables.records_of(self.RECORDS))

    def test_a_row_has_the_times_and_the_speedups_of_its_record(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(readme_tables, "AUTHOR", "naive")
        records = readme_tables.records_of(self.RECORDS)
        lines = readme_tables.table(records).splitlines()
        call = next(record for record in records if record.solution == "naive/level1/17_library_call.py")
        row = next(line for line in lines if "17_library_call" in line)
        assert call.timing is not None
        median_s = call.timing["solution"]["device"]["median_s"]
        assert f"| {median_s * 1e3:.3g} ms |" in row
        assert f"{call.speedup:.3g}" in row
        assert lines[-1].startswith(f"{len(lines) - 4} solutions, ")

    def test_it_stands_between_the_markers(self, tmp_path: Path) -> None:
        text = f"before\n{readme_tables.BEGIN}\nold\n{readme_tables.END}\nafter\n"
        new = readme_tables.replaced(text, "| new |")
        assert "old" not in new
        assert new.startswith("before\n")
        assert new.endswith("\nafter\n")
        assert readme_tables.replaced(new, "| new |") == new
        with pytest.raises(readme_tables.TablesError, match="put these two lines"):
            readme_tables.replaced("no markers", "| new |")

    def test_the_check_fails_where_the_readme_says_something_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(readme_tables, "AUTHOR", "naive")
        readme = tmp_path / "README.md"
        readme.write_text(f"{readme_tables.BEGIN}\n{readme_tables.END}\n")
        given = ["--run", str(self.RECORDS), "--readme", str(readme)]
        assert readme_tables.main([*given, "--check"]) == 1
        assert readme_tables.main(given) == 0
        assert readme_tables.main([*given, "--check"]) == 0
