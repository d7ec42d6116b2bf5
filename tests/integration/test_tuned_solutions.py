"""The tuned solutions: named, explained, constructed like their references; some run here; page and run agree.

That all of them pass, and how fast they are, is in the committed run `results/h200`: no GPU is needed to check it.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.api import Harness
from harness.catalog import find_authors, find_solutions, load_problems
from harness.core.choices import Baseline
from harness.core.problem import Solution, digest_text
from harness.core.record import Record
from harness.core.status import Status
from harness.referee.problem.loader import load_reference
from tests.benchmarks import apart, reached, readme_tables
from tests.support.paths import ROOT

HERE = ROOT
CATALOG = load_problems(HERE / "problems")
TUNED = {held.label: held for held in find_solutions([HERE / "solutions" / "tuned"], CATALOG)}
TRITON = [label for label, held in TUNED.items() if "import triton" in held.source]


def idea_of(solution: Solution) -> str:
    return ast.get_docstring(ast.parse(solution.source)) or ""


@pytest.fixture(scope="module")
def committed() -> readme_tables.Results:
    folders = readme_tables.COMPILED, readme_tables.AUTOTUNED_APART
    return readme_tables.Results(readme_tables.records_of(readme_tables.RUN), *folders)


def test_the_author_introduces_itself() -> None:
    authors, findings = find_authors(list(TUNED.values()))
    assert not findings
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


def test_two_of_them_pass_on_the_host_device() -> None:
    """One whose blocks wait for each other, one that sorts in shared memory."""
    with Harness(device="host") as harness:
        chosen = [TUNED[f"tuned/level1/{name}.py"] for name in ("23_slices_meet", "112_group_maxima")]
        results = [future.result(600) for future in [harness.submit(held.problem_id, held.path) for held in chosen]]
    assert [(result.status, result.reason) for result in results if result.status is not Status.passed] == []


class TestTheCommittedRun:
    def test_every_solution_has_passed_as_it_is_now(self, committed: readme_tables.Results) -> None:
        records = {record.solution: record for record in committed.records}
        stood = reached.lines_as_run(readme_tables.RUN)
        assert set(records) == {label for label in TUNED if "/backward/" not in label}
        for label, record in records.items():
            assert record.status is Status.passed, f"{label}: {record.reason}"
            assert reached.was_run(TUNED[label].source, record, stood), f"{label} was changed after the run"
            assert record.problem_digest == CATALOG[record.problem].digest, (
                f"{record.problem} was changed after the run"
            )

    def test_comments_state_what_the_run_says(self, committed: readme_tables.Results) -> None:
        for record in committed.records:
            line = reached.line_of(record)
            assert line is not None, f"{record.solution} was not timed"
            assert reached.line_in(TUNED[record.solution].source) == line

    def test_what_is_written_from_it_is_up_to_date(self, committed: readme_tables.Results) -> None:
        """The page of all solutions, the leaderboard; each is compared by itself."""
        run = readme_tables.RUN
        texts = readme_tables.made(run, readme_tables.SOLUTIONS, readme_tables.COMPILED, readme_tables.AUTOTUNED_APART)
        assert {run / "README.md", run / "leaderboard.csv"} <= set(texts)
        for path, text in texts.items():
            assert path.read_text() == text, path

    def test_nearly_all_beat_eager(self, committed: readme_tables.Results) -> None:
        """All but the one for the host's processor."""
        slower = {record.solution for record in committed.records if not committed.faster(record)}
        assert slower == {"tuned/level3/109_plain_cpp.py"}

    def test_most_that_were_compared_beat_eager_and_max_autotune(self, committed: readme_tables.Results) -> None:
        faster = sum(map(committed.beats_both, committed.records))
        assert faster >= 0.8 * len(committed.strictest)

    def test_fifteen_beat_eager_and_both_forms_of_max_autotune_in_one_run(self) -> None:
        """With all of them timed in the same evaluation, none in a run of its own."""
        alone = readme_tables.Results(readme_tables.records_of(readme_tables.RUN))
        for record in alone.records:
            if record.solution in alone.strictest:
                assert all(record.solution in held for held in alone.autotuned.values()), record.solution
        assert sum(map(alone.beats_both, alone.records)) >= 15

    def test_the_sanitizers_watched_them(self, committed: readme_tables.Results) -> None:
        """With nothing found; not everything can be watched (see `harness.referee.audit.audit`)."""
        audits = [record.evidence.get("audit") or {} for record in committed.records]
        assert sum(bool(audit.get("tools")) and audit.get("findings") == 0 for audit in audits) >= 25

    def test_most_beat_torch_compile(self, committed: readme_tables.Results) -> None:
        assert len(committed.compiled) >= 50
        assert sum(lead.sure for lead in committed.compiled.values()) >= 40

    def test_no_path_of_the_machine_is_in_it(self) -> None:
        for path in readme_tables.RUN.iterdir():
            assert not re.search(r"(?<![\w.~-])/(tmp|root|home|work|mnt)\b", path.read_text()), path

    def test_a_matrix_and_a_vector_at_the_speed_of_copies(self, committed: readme_tables.Results) -> None:
        fraction = committed.eager["tuned/level1/4_eight_rows.py"].sol_fraction
        assert fraction is not None
        assert fraction > 0.9

    def test_a_product_on_tensor_cores(self, committed: readme_tables.Results) -> None:
        """Eager is cuBLAS there."""
        label = "tuned/level1/2_tensor_cores.py"
        assert "mma.sync" in TUNED[label].source
        speedup = committed.eager[label].speedup
        assert speedup is not None
        assert speedup > 0.6

    def test_three_in_triton_and_one_in_plain_cpp(self, committed: readme_tables.Results) -> None:
        passed = {record.solution for record in committed.records if record.status is Status.passed}
        assert len(passed & set(TRITON)) >= 3
        plain = [label for label in passed if "cuda_sources" not in TUNED[label].source and label not in TRITON]
        assert plain


class TestTheLineOfAComment:
    SOURCE = '"""An idea.\n\nBytes: 4.\n"""\n\nimport torch\n'
    LINE = "Reached on an H200: 93 % of the speed of light of the reference's work (memory), 138 us."

    def record(self, source: str) -> Record:
        held = next(r for r in readme_tables.records_of(TestTheTable.RECORDS) if r.speedup is not None)
        return replace(held, solution="tuned/level1/1_one.py", solution_digest=digest_text(source))

    def test_stands_last_in_the_docstring(self) -> None:
        written = reached.with_line(self.SOURCE, self.LINE)
        assert written == self.SOURCE.replace("4.\n", f"4.\n{self.LINE}\n")
        assert reached.line_in(self.SOURCE) is None
        assert reached.line_in(written) == self.LINE
        assert reached.with_line(written, self.LINE) == written
        assert reached.with_line(written, None) == self.SOURCE

    def test_elsewhere_it_is_code_like_any_other(self) -> None:
        below = self.SOURCE + f"'''\n{self.LINE}\n'''\n"
        assert reached.line_in(below) is None
        assert reached.with_line(below, None) == below

    @pytest.mark.parametrize(
        "line", ['Reached on an H200: 1 %."""', "Reached on an H200: 1\nimport os", "import os", ""]
    )
    def test_can_hold_no_code(self, line: str) -> None:
        with pytest.raises(reached.ReachedError, match="one line of plain text"):
            reached.with_line(self.SOURCE, line)

    def test_needs_a_docstring_that_is_closed_on_a_line_of_its_own(self) -> None:
        with pytest.raises(reached.ReachedError, match="docstring"):
            reached.with_line("import torch\n", self.LINE)
        with pytest.raises(reached.ReachedError, match="closing quotes"):
            reached.with_line('"""An idea."""\n', self.LINE)

    def test_what_was_run_is_known_again_with_another_line(self) -> None:
        later = reached.with_line(self.SOURCE, self.LINE)
        assert reached.was_run(later, self.record(self.SOURCE), {})
        earlier = self.LINE.replace("93", "88")
        ran = reached.with_line(self.SOURCE, earlier)
        assert reached.was_run(later, self.record(ran), {"tuned/level1/1_one.py": earlier})
        assert not reached.was_run(later, self.record(ran), {})

    @pytest.mark.parametrize(
        "change", [("import torch", "import  torch"), ("Bytes: 4", "Bytes: 5"), ("torch\n", "torch")]
    )
    def test_any_other_change_is_one(self, change: tuple[str, str]) -> None:
        later = reached.with_line(self.SOURCE.replace(*change), self.LINE)
        assert later != reached.with_line(self.SOURCE, self.LINE)
        assert not reached.was_run(later, self.record(self.SOURCE), {})
        assert not reached.was_run(later, self.record(self.SOURCE), {"tuned/level1/1_one.py": self.LINE})


class TestBesideCodeThatTorchCompiled:
    """Timed in another run, with eager in both."""

    HEAD = "problem,workload,baseline,outcome,device_s,over_eager,over_eager_low,over_eager_high,problem_digest"

    @pytest.fixture
    def record(self) -> Record:
        held = next(r for r in readme_tables.records_of(TestTheTable.RECORDS) if r.speedup is not None)
        return replace(held, speedup=3.0, timing={**(held.timing or {}), "speedup": {"low": 2.9, "high": 3.1}})

    def folder(self, place: Path, record: Record, **other: str) -> Path:
        row = dict(zip(self.HEAD.split(","), [record.problem, "full", "compile", "measured", "1e-4"], strict=False))
        row |= {"over_eager": "2", "over_eager_low": "1.9", "over_eager_high": "2.1"}
        row |= {"problem_digest": record.problem_digest, **other}
        lines = [self.HEAD, ",".join(row.get(name, "") for name in self.HEAD.split(","))]
        (place / "baselines.csv").write_text("\n".join(lines) + "\n")
        machine = {name: record.environment.get(name) for name in apart.SAME}
        (place / "environment.json").write_text(json.dumps({"environment": machine}))
        return place

    def test_the_lead_is_one_speedup_over_eager_by_the_other(self, tmp_path: Path, record: Record) -> None:
        lead = apart.leads([record], self.folder(tmp_path, record))[record.solution]
        assert lead.speedup == pytest.approx(1.5)
        assert lead.sure
        assert not apart.leads([record], tmp_path, Baseline.COMPILE_MAX_AUTOTUNE)

    def test_a_lead_within_what_runs_differ_by_is_none(self, tmp_path: Path, record: Record) -> None:
        folder = self.folder(tmp_path, record, over_eager="2.80", over_eager_low="2.79", over_eager_high="2.83")
        lowest = 2.9 / 2.83
        assert lowest < 1.0 + apart.MARGIN
        assert not apart.leads([record], folder)[record.solution].sure
        folder = self.folder(tmp_path, record, over_eager="2.80", over_eager_low="2.79", over_eager_high="2.81")
        assert apart.leads([record], folder)[record.solution].sure

    @pytest.mark.parametrize(
        "other",
        [
            {"baseline": "eager"},
            {"outcome": "wrong"},
            {"workload": "small"},
            {"problem_digest": "another"},
            {"problem": "level9/9"},
        ],
    )
    def test_only_the_same_is_compared(self, tmp_path: Path, record: Record, other: dict[str, str]) -> None:
        assert not apart.leads([record], self.folder(tmp_path, record, **other))

    def test_another_machine_is_not_compared(self, tmp_path: Path, record: Record) -> None:
        folder = self.folder(tmp_path, record)
        assert apart.leads([record], folder)
        assert not apart.leads([replace(record, environment={**record.environment, "driver": "1.0"})], folder)
        assert not apart.leads([record], tmp_path / "nothing")

    def test_max_autotune_apart_counts_where_the_record_has_none(
        self, tmp_path: Path, record: Record, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(readme_tables, "AUTHOR", record.author)
        folder = self.folder(tmp_path, record, baseline="compile_max_autotune")
        results = readme_tables.Results([record], None, folder)
        assert results.strictest[record.solution].speedup == pytest.approx(1.5)
        assert results.beats_both(results.records[0])
        rows = {"compile_max_autotune": {"speedup": 0.9, "low": 0.899, "high": 0.901}}
        beside = replace(record, timing={**(record.timing or {}), "baselines": rows})
        results = readme_tables.Results([beside], None, folder)
        assert results.strictest[record.solution].speedup == pytest.approx(0.9)
        assert not results.beats_both(results.records[0])

    def test_a_column_and_a_count_say_it(self, tmp_path: Path, record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(readme_tables, "AUTHOR", record.author)
        results = readme_tables.Results([record], self.folder(tmp_path, record))
        assert "| over eager (95 %) | over compile | SoL |" in readme_tables.page(results)
        assert "| 3 (2.9 to 3.1) | 1.5 |" in readme_tables.page(results)
        assert "Of 1 that could be compared 1 are faster than `torch.compile`" in readme_tables.page(results)
        level = next(line for line in readme_tables.levels(results) if line.startswith("| level1 |"))
        assert level.endswith("| 3.00x | 1 | 1 |")


class TestTheTable:
    RECORDS = readme_tables.ROOT / "results" / "h200-examples"

    @pytest.fixture
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """A run of the examples with solutions of its own; the arguments that name them."""
        monkeypatch.setattr(readme_tables, "AUTHOR", "naive")
        run, solutions = tmp_path / "run", tmp_path / "solutions"
        shutil.copytree(self.RECORDS, run)
        lines = []
        for text in (self.RECORDS / "records.jsonl").read_text().splitlines():
            held = json.loads(text)
            source = f'"""An idea for {held["problem"]}.\n"""\n'
            if "17_library_call" in held["solution"]:
                source = reached.with_line(source, TestTheLineOfAComment.LINE)
            path = solutions / held["solution"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
            lines.append(json.dumps({**held, "solution_digest": digest_text(source)}))
        (run / "records.jsonl").write_text("\n".join(lines) + "\n")
        own = ["--run", str(run), "--solutions", str(solutions)]
        return [*own, "--baselines", str(tmp_path / "baselines"), "--autotuned", str(tmp_path / "autotuned")]

    def library_call(self) -> Record:
        held = readme_tables.records_of(self.RECORDS)
        return next(record for record in held if record.solution == "naive/level1/17_library_call.py")

    def test_of_another_run_it_says_that_nothing_is_there(self) -> None:
        with pytest.raises(readme_tables.TablesError, match="no record of a tuned solution"):
            readme_tables.Results(readme_tables.records_of(self.RECORDS))

    def test_a_row_has_the_times_and_the_speedups_of_its_record(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(readme_tables, "AUTHOR", "naive")
        results = readme_tables.Results(readme_tables.records_of(self.RECORDS))
        lines = readme_tables.page(results).splitlines()
        call = next(record for record in results.records if record.solution == "naive/level1/17_library_call.py")
        row = next(line for line in lines if "17_library_call" in line)
        assert call.timing is not None
        median_s = call.timing["solution"]["device"]["median_s"]
        assert f"| {median_s * 1e3:.3g} ms |" in row
        assert f"{call.speedup:.3g}" in row
        rows = [line for line in lines if re.match(r"\| level\d/", line)]
        assert len(rows) == len(results.records)
        assert lines[-1].startswith(f"{len(rows)} solutions, ")

    def test_of_two_forms_of_max_autotune_the_faster_one_decides(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Beats one of them only: not both."""
        monkeypatch.setattr(readme_tables, "AUTHOR", "naive")
        held = next(
            r for r in readme_tables.records_of(self.RECORDS) if r.solution == "naive/level1/17_library_call.py"
        )
        assert held.timing is not None

        def judged(graphs: float, no_graphs: float) -> readme_tables.Results:
            speedups = {"compile_max_autotune": graphs, "compile_max_autotune_no_cudagraphs": no_graphs}
            rows = {name: {"speedup": s, "low": s * 0.999, "high": s * 1.001} for name, s in speedups.items()}
            timing = {**(held.timing or {}), "baselines": rows, "speedup": {"low": 1.49, "high": 1.51}}
            return readme_tables.Results([replace(held, speedup=1.5, timing=timing)])

        both, one = judged(2.0, 1.2), judged(2.0, 0.9)
        assert both.faster(both.records[0])
        assert both.beats_both(both.records[0])
        assert one.faster(one.records[0])
        assert not one.beats_both(one.records[0])
        assert "| 2 | 0.9 |" in readme_tables.page(one)
        assert "1 are faster than eager (geometric mean of all 1.50x), 0 than eager and" in readme_tables.page(one)
        assert readme_tables.COMPARED in readme_tables.page(one)
        level = next(line for line in readme_tables.levels(both) if line.startswith("| level1 |"))
        assert level.endswith("| 1 | 1 | 1 | 1.50x | 1 | 1 |")

    def test_without_max_autotune_it_says_so_and_has_no_columns_of_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(readme_tables, "AUTHOR", "naive")
        results = readme_tables.Results(readme_tables.records_of(self.RECORDS))
        text = readme_tables.page(results)
        assert readme_tables.NOT_COMPARED in text
        assert not [line for line in text.splitlines() if line.startswith("|") and "autotune" in line]
        for table in re.findall(r"(?:^\|.*\n?)+", text, re.M):
            assert len({line.count("|") for line in table.splitlines()}) == 1

    def test_a_lead_within_the_noise_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(readme_tables, "AUTHOR", "naive")
        held = next(
            r for r in readme_tables.records_of(self.RECORDS) if r.solution == "naive/level1/17_library_call.py"
        )
        timing = {**(held.timing or {}), "speedup": {"low": 1.001, "high": 1.003}, "noise_floor": {"log_width": 0.005}}
        results = readme_tables.Results([replace(held, speedup=1.002, timing=timing)])
        assert not results.faster(results.records[0])

    def test_one_command_writes_all_and_the_check_sees_every_difference(self, place: list[str]) -> None:
        run, solutions = Path(place[1]), Path(place[3])
        assert readme_tables.main([*place, "--check"]) == 1
        assert readme_tables.main(place) == 0
        assert readme_tables.main([*place, "--check"]) == 0
        call = solutions / "naive" / "level1" / "17_library_call.py"
        assert "Reached on an H200: " in call.read_text()
        assert TestTheLineOfAComment.LINE not in call.read_text()
        kept = json.loads((run / reached.COMMENTS_FILE).read_text())
        assert kept == {"naive/level1/17_library_call.py": TestTheLineOfAComment.LINE}
        assert readme_tables.main(place) == 0, "written twice it is the same"
        for path in (run / "README.md", run / "leaderboard.csv", call):
            held = path.read_text()
            path.write_text(held.replace("1", "2", 1) if path != call else reached.with_line(held, None))
            assert readme_tables.main([*place, "--check"]) == 1, path
            path.write_text(held)
        assert readme_tables.main([*place, "--check"]) == 0

    def test_a_solution_changed_after_the_run_is_refused(
        self, place: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        call = Path(place[3]) / "naive" / "level1" / "17_library_call.py"
        page = Path(place[1]) / "README.md"
        call.write_text(call.read_text() + "\n")
        assert readme_tables.main(place) == 1
        assert "changed after they were run, run them again: naive/level1/17_library_call.py" in capsys.readouterr().err
        assert not page.exists()
