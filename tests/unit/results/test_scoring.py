"""Scores and ranks over records."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.choices import DeviceKind
from harness.core.config import Machine, resolve
from harness.core.problem import Problem, Solution, Workload
from harness.core.record import Record
from harness.core.status import Status
from harness.core.task import Outcome
from harness.results.leaderboard import By, Metric, leaderboard
from harness.results.scoring import (
    Selection,
    baselines_of,
    entries_of,
    fast_p,
    geometric_mean,
    pass_at_k,
    score,
    scored,
    select,
)
from harness.runner.plan import PlannedSolution
from harness.runner.record_builder import record_of


def record(
    author: str = "a",
    problem: str = "level1/1",
    speedup: float | None = None,
    *,
    status: Status = Status.passed,
    solution: str | None = None,
    half: float | None = None,
    device: DeviceKind = DeviceKind.CUDA,
    gpu: str | None = "NVIDIA H200",
    timing: dict[str, object] | None = None,
    **more: object,
) -> Record:
    held: dict[str, object] = {}
    if speedup is not None:
        held["speedup"] = {"speedup": speedup, "low": None, "high": None}
        if half is not None:
            held["speedup"] = {"low": speedup * math.exp(-half), "high": speedup * math.exp(half)}
    return Record(
        problem=problem,
        author=author,
        solution=solution or f"{author}/{problem}.py",
        device=device,
        workload=str(more.pop("workload", "full")),
        status=status,
        reason=str(more.pop("reason", "as tested")),
        speedup=speedup,
        timing={**held, **(timing or {})} if speedup is not None or timing else None,
        environment={"gpu": gpu, "cpu": "a CPU"},
        **more,  # type: ignore[arg-type]
    )


class TestKernelBenchVector:
    """The test vector of KernelBench's own metrics."""

    correct = (True, False, True, True, False)
    baseline_s = (0.1, 0.15, 0.2, 0.05, 0.3)
    actual_s = (0.2, 0.15, 0.3, 0.01, 0.2)
    speedups = tuple(b / a if ok else None for ok, b, a in zip(correct, baseline_s, actual_s, strict=True))

    def test_formulas(self) -> None:
        assert geometric_mean(v for v in self.speedups if v is not None) == pytest.approx(1.185631101, abs=1e-9)
        assert fast_p(self.speedups, 1.0) == pytest.approx(0.2)
        assert fast_p(self.speedups, 0.5) == pytest.approx(0.4)
        assert fast_p(self.speedups, 0.0) == pytest.approx(0.6)
        assert fast_p(self.speedups, 2.0) == pytest.approx(0.2)

    def test_through_records(self) -> None:
        records = [
            record(problem=f"level1/{number}", speedup=speedup)
            if speedup is not None
            else record(problem=f"level1/{number}", status=Status.wrong_value)
            for number, speedup in enumerate(self.speedups, start=1)
        ]
        found = score(entries_of(records))
        assert found.geomean == pytest.approx(1.185631101, abs=1e-9)
        assert (found.fast_p[1.0], found.fast_p[0.5], found.fast_p[0.0]) == (0.2, 0.4, 0.6)
        assert (found.results, found.passed, found.pass_at_k[1]) == (5, 3, pytest.approx(0.6))


class TestFormulas:
    def test_strictly_above(self) -> None:
        assert fast_p([1.0, 1.0], 1.0) == 0.0
        assert fast_p([], 1.0) is None

    def test_geometric_mean(self) -> None:
        assert geometric_mean([]) is None
        assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
        for bad in (0.0, -1.0, math.nan, math.inf):
            with pytest.raises(ValueError, match="positive"):
                geometric_mean([1.0, bad])

    def test_pass_at_k_is_the_share_of_subsets_with_a_correct_sample(self) -> None:
        for samples, correct, k in ((5, 2, 1), (5, 2, 2), (6, 1, 3), (4, 0, 2), (4, 4, 4), (7, 5, 3)):
            marks = [True] * correct + [False] * (samples - correct)
            subsets = [any(chosen) for chosen in itertools.combinations(marks, k)]
            assert pass_at_k(samples, correct, k) == pytest.approx(sum(subsets) / len(subsets))
        assert pass_at_k(3, 3, 5) is None
        with pytest.raises(ValueError, match="impossible"):
            pass_at_k(3, 4, 1)

    @given(
        samples=st.integers(1, 50),
        correct=st.integers(0, 50),
        k=st.integers(1, 50),
    )
    def test_pass_at_k_lies_between_0_and_1_and_grows_with_k(self, samples: int, correct: int, k: int) -> None:
        correct = min(correct, samples)
        value = pass_at_k(samples, correct, k)
        if value is not None:
            assert -1e-12 <= value <= 1.0 + 1e-12
            more = pass_at_k(samples, correct, k + 1)
            assert more is None or more >= value - 1e-12


class TestLikeWithLike:
    def test_devices_gpus_and_workloads_never_mix(self) -> None:
        records = [
            record("a", speedup=2.0),
            record("b", speedup=50.0, device=DeviceKind.HOST, gpu=None),
            record("c", speedup=3.0, gpu="NVIDIA L4"),
            record("d", speedup=4.0, workload="small"),
            record("e", speedup=5.0, gpu=None),
        ]
        rows = leaderboard(records)
        assert len({row.group for row in rows}) == 5
        assert all(row.rank == 1 for row in rows)
        assert [row.group.processor for row in rows if row.author == "b"] == ["a CPU"]
        assert [row.group.processor for row in rows if row.author == "e"] == ["unknown"]
        with pytest.raises(ValueError, match="can't be scored together"):
            score(entries_of(records))

    def test_a_problem_whose_file_changed_is_another_one(self) -> None:
        records = [record("a", speedup=2.0, problem_digest="x"), record("b", speedup=3.0, problem_digest="y")]
        rows = leaderboard(records, by=By.solution)
        assert [row.rank for row in rows] == [1, 1]
        assert len(leaderboard(records, by=By.problem)) == 2
        of_one = [record(speedup=2.0, problem_digest="x"), record(speedup=3.0, problem_digest="y", solution="a/new.py")]
        assert len(select(entries_of(of_one), Selection.best)) == 2
        wrong = [
            record(status=Status.wrong_value, problem_digest="y", solution=f"a/{n}.py", sample=n) for n in (1, 2, 3)
        ]
        assert score(entries_of([of_one[0], *wrong]), ks=(1,)).pass_at_k == {1: pytest.approx(1 / 2)}

    def test_the_latest_of_several_runs_counts(self) -> None:
        old = record(speedup=9.0, finished_at="2026-01-01T00:00:00Z")
        new = record(speedup=2.0, finished_at="2026-02-01T00:00:00Z")
        for order in ([old, new], [new, old]):
            assert [entry.speedup for entry in entries_of(order)] == [2.0]

    @pytest.mark.parametrize("when", ["2999-01-01T00:00:00Z", "zzz", ""])
    def test_a_run_that_is_still_to_finish_does_not_count_as_the_latest(self, when: str) -> None:
        own = record(speedup=2.0, finished_at="2026-02-01T00:00:00Z")
        crafted = record(speedup=9.0, finished_at=when)
        for order in ([own, crafted], [crafted, own]):
            assert [entry.speedup for entry in entries_of(order)] == [2.0]
        assert [entry.speedup for entry in entries_of([crafted])] == [9.0]

    def test_another_baseline_reads_its_own_speedups(self) -> None:
        records = [
            record("a", speedup=4.0, timing={"baselines": {"compile": {"speedup": 1.5, "low": 1.4, "high": 1.6}}}),
            record("b", speedup=6.0),
        ]
        rows = leaderboard(records, baseline="compile")
        assert [(row.author, row.speedup, row.low, row.rank) for row in rows] == [
            ("a", pytest.approx(1.5), pytest.approx(1.4), 1),
            ("b", None, None, None),
        ]
        assert rows[1].untimed == 1
        assert rows[1].fast_p[1.0] is None
        assert rows[0].group.baseline == "compile"

    def test_the_records_own_speedup_is_against_the_baseline_that_it_names(self) -> None:
        timing = {"baseline": "compile", "baselines": {"eager": {"speedup": 3.0}}}
        held = record("a", speedup=1.5, timing=timing)
        assert [entry.speedup for entry in entries_of([held])] == [3.0]
        assert [entry.speedup for entry in entries_of([held], baseline="compile")] == [1.5]
        assert baselines_of(held) == ("compile",)

    def test_figures_of_a_foreign_record_that_make_no_sense_are_absent(self) -> None:
        odd = record(
            speedup=2.0, timing={"speedup": {"low": "x", "high": math.nan}, "speed_of_light": {"fraction": True}}
        )
        entry = entries_of([odd])[0]
        assert (entry.low, entry.high, entry.sol_fraction) == (None, None, None)
        assert entries_of([record(speedup=2.0, timing={"speedup_interval": [1.9, 2.1]})])[0].low == 1.9


class TestDenominators:
    def test_what_says_nothing_about_the_solution_is_in_none(self) -> None:
        records = [
            record(problem="level1/1", speedup=2.0),
            record(problem="level1/2", status=Status.harness_error),
            record(problem="level1/3", status=Status.unsupported),
            record(problem="level1/4", status=Status.crashed),
        ]
        found = score(entries_of(records))
        assert (found.results, found.passed, found.unjudged) == (2, 1, 2)
        assert found.fast_p[1.0] == 0.5
        assert found.pass_at_k[1] == 0.5

    def test_problems_never_attempted_count_as_failures_where_asked_for(self) -> None:
        found = score(entries_of([record(speedup=2.0)]), problems=[f"level1/{n}" for n in range(1, 5)])
        assert (found.results, found.fast_p[1.0]) == (4, 0.25)
        assert found.geomean == pytest.approx(2.0)

    def test_an_untimed_pass_is_right_but_not_slow(self) -> None:
        host = [
            record(problem="level1/1", device=DeviceKind.HOST),
            record(problem="level1/2", device=DeviceKind.HOST, status=Status.data_race),
        ]
        found = score(entries_of(host))
        assert (found.passed, found.untimed, found.geomean) == (1, 1, None)
        assert found.fast_p[0.0] == 0.5
        assert found.fast_p[1.0] is None

    def test_a_failure_never_makes_a_mean_nan(self) -> None:
        found = score(entries_of([record(status=Status.wrong_value)]))
        assert (found.geomean, found.fast_p[0.0], found.low) == (None, 0.0, None)

    def test_samples(self) -> None:
        records = [
            record(speedup=None, status=Status.compile_error, solution="s0", sample=0),
            record(speedup=1.5, solution="s1", sample=1),
            record(speedup=3.0, solution="s2", sample=2),
        ]
        entries = entries_of(records)
        assert [entry.solution for entry in select(entries, Selection.best)] == ["s2"]
        best = score(entries, ks=(1, 2, 5))
        assert (best.results, best.fast_p[2.0], best.geomean) == (1, 1.0, pytest.approx(3.0))
        every = score(entries, selection=Selection.all)
        assert (every.results, every.fast_p[2.0], every.geomean) == (3, pytest.approx(1 / 3), pytest.approx(4.5**0.5))
        assert best.pass_at_k == {1: pytest.approx(2 / 3), 2: 1.0, 5: None}

    def test_the_mean_s_interval_shrinks_with_the_number_of_problems(self) -> None:
        records = [record(problem=f"level1/{n}", speedup=2.0, half=0.04) for n in range(16)]
        found = score(entries_of(records))
        assert found.low is not None
        assert math.log(2.0 / found.low) == pytest.approx(0.04 / 4)
        without = score(entries_of([*records, record(problem="level1/99", speedup=2.0)]))
        assert without.low is None

    def test_a_mean_inside_the_noise_of_its_sessions_is_the_same(self) -> None:
        timing: dict[str, object] = {"noise_floor": {"log_width": 0.005}}
        near = [record(problem=f"level1/{n}", speedup=1.004, half=0.001, timing=timing) for n in range(4)]
        (row,) = leaderboard(near)
        assert row.same_within == pytest.approx(0.005, abs=1e-4)
        assert row.to_json()["same_within"] == row.same_within
        (row,) = leaderboard([*near, record(problem="level1/9", speedup=1.5, half=0.001, timing=timing)])
        assert row.same_within is None
        (row,) = leaderboard([record(speedup=1.004, half=0.001)])
        assert row.same_within is None, "no noise floor was measured"

    def test_where_the_noise_hides_whether_it_is_faster_it_is_not_counted_as_faster(self) -> None:
        wide: dict[str, object] = {"noise_floor": {"log_width": 0.5}}
        (entry,) = entries_of([record(speedup=1.2, half=0.01, timing=wide)])
        assert (entry.same_within, entry.counted) == (None, 1.0)
        (entry,) = entries_of([record(speedup=0.7, half=0.01, timing=wide)])
        assert (entry.same_within, entry.counted) == (None, 0.7), "nor is a slower one as fast"
        narrow: dict[str, object] = {"noise_floor": {"log_width": 0.005}}
        (entry,) = entries_of([record(speedup=1.05, half=0.13, timing=narrow)])
        assert entry.counted == 1.0
        assert score([entry]).fast_p[1.0] == 0.0
        (entry,) = entries_of([record(speedup=1.2, half=0.13, timing=narrow)])
        assert entry.counted == 1.2
        noisy = scored(record(speedup=7.0, half=0.5, timing=narrow))
        assert (noisy.speedup, noisy.counted) == (7.0, None), "too noisy to tell"

    def test_inside_the_noise_floor_nothing_is_faster_than_1x(self) -> None:
        timing: dict[str, object] = {"noise_floor": {"log_width": 0.005}}
        for floor, share in ((timing, 0.0), ({}, 1.0)):
            found = score(entries_of([record(speedup=1.004, half=0.001, timing=floor)]))
            assert (found.fast_p[1.0], found.fast_p[0.8]) == (share, 1.0)


class TestRanks:
    def test_overlapping_intervals_share_a_rank(self) -> None:
        records = [
            record("a", speedup=2.00, half=0.02),
            record("b", speedup=1.97, half=0.02),
            record("c", speedup=1.91, half=0.02),
            record("d", speedup=1.50, half=0.02),
        ]
        rows = leaderboard(records, by=By.solution)
        # c overlaps b but not a, the first of the rank.
        assert [(row.author, row.rank) for row in rows] == [("a", 1), ("b", 1), ("c", 3), ("d", 4)]

    def test_noise_floors_widen_the_intervals(self) -> None:
        for floor, ranks in ((0.001, [1, 2]), (0.02, [1, 1])):
            timing: dict[str, object] = {"noise_floor": {"log_width": floor}}
            rows = [record(name, speedup=s, half=0.005, timing=timing) for name, s in (("a", 1.52), ("b", 1.48))]
            assert [row.rank for row in leaderboard(rows, by=By.solution)] == ranks

    def test_without_intervals_only_equal_values_tie(self) -> None:
        rows = leaderboard([record("a", speedup=2.0), record("b", speedup=1.999), record("c", speedup=2.0)])
        assert [(row.author, row.rank) for row in rows] == [("a", 1), ("c", 1), ("b", 3)]

    def test_disqualified_is_listed_without_a_rank_and_with_its_reason(self) -> None:
        records = [
            record("cheat", status=Status.disqualified, reason="impossible times: 3 ns"),
            record("honest", speedup=1.1),
            record("broken", status=Status.compile_error, reason="line 3: expected ';'"),
        ]
        rows = {row.author: row for row in leaderboard(records, by=By.solution)}
        assert rows["honest"].rank == 1
        assert rows["cheat"].rank is None
        assert rows["cheat"].reason == "impossible times: 3 ns"
        authors = {row.author: row for row in leaderboard(records)}
        assert (authors["cheat"].rank, authors["cheat"].disqualified) == (None, 1)
        assert "impossible times" in authors["cheat"].reason
        problem = leaderboard(records, by=By.problem)
        assert [(row.author, row.disqualified, row.passed, row.results) for row in problem] == [
            ("honest", 1, 1, 3),
            ("cheat", 1, 0, 1),
        ]

    @pytest.mark.parametrize("by", [By.author, By.problem])
    def test_boards_end_with_every_disqualified_solution(self, by: By) -> None:
        records = [
            record("a", speedup=2.0),
            record("a", "level1/2", status=Status.disqualified, reason="first trick"),
            record("b", status=Status.disqualified, reason="second trick"),
        ]
        rows = leaderboard(records, by=by)
        last = [(row.author, row.solution, row.rank, row.status, row.reason) for row in rows[-2:]]
        assert last == [
            ("a", "a/level1/2.py", None, Status.disqualified, "first trick"),
            ("b", "b/level1/1.py", None, Status.disqualified, "second trick"),
        ]
        assert [row.rank for row in leaderboard(records) if row.author == "a" and row.solution is None] == [1]

    def test_another_driver_is_another_board(self) -> None:
        records = [
            replace(record(author, speedup=2.0), environment={"gpu": "NVIDIA H200", "driver": driver})
            for author, driver in (("a", "580.1"), ("b", "580.1"), ("c", "590.2"))
        ]
        rows = leaderboard(records)
        assert [(row.author, row.rank, row.to_json()["driver"]) for row in rows] == [
            ("a", 1, "580.1"),
            ("b", 1, "580.1"),
            ("c", 1, "590.2"),
        ]
        assert len({row.group for row in rows}) == 2

    def test_another_precision_is_another_board(self) -> None:
        records = [record("a", speedup=2.0), record("b", speedup=9.0, evidence={"precision_override": "fp16"})]
        rows = leaderboard(records, by=By.solution)
        assert [(row.author, row.rank, row.group.precision) for row in rows] == [
            ("a", 1, "declared"),
            ("b", 1, "fp16"),
        ]

    def test_a_run_of_another_precision_says_so_in_its_records(self, tmp_path: Path) -> None:
        problem = Problem(id="level1/1", name="p", path=tmp_path, source="", digest="d")
        solution = Solution(problem_id="level1/1", author="a", label="a/level1/1.py", path=tmp_path, source="x")
        job = PlannedSolution(solution=solution, problem=problem, workload=Workload(name="full"))
        machine = Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=2**34)
        found = []
        for precision in (None, "fp16"):
            config = resolve(machine=machine, run_id="r", options={"paths": [tmp_path], "precision": precision})
            outcome = Outcome(status=Status.crashed, reason="it crashed")
            found.append(record_of(job, outcome, None, config, {"cpu": "a CPU"}, wall_s=1.0))
        assert [row.group.precision for row in leaderboard(found)] == ["declared", "fp16"]

    def test_solutions_by_the_share_of_the_speed_of_light(self) -> None:
        records = [
            record("fast", speedup=3.0, timing={"speed_of_light": {"fraction": 0.4}}),
            record("near", speedup=2.0, timing={"speed_of_light": {"fraction": 0.9}}),
            record("unknown", speedup=9.0),
        ]
        rows = leaderboard(records, by=By.solution, metric=Metric.sol)
        assert [(row.author, row.rank) for row in rows] == [("near", 1), ("fast", 2), ("unknown", None)]

    def test_authors_by_each_metric(self) -> None:
        records = [
            record("few", "level1/1", 10.0, timing={"speed_of_light": {"fraction": 0.2}}),
            record("few", "level1/2", status=Status.wrong_value),
            record("many", "level1/1", 2.0, timing={"speed_of_light": {"fraction": 0.8}}),
            record("many", "level1/2", 2.0, timing={"speed_of_light": {"fraction": 0.5}}),
        ]
        first = {metric: leaderboard(records, metric=metric)[0].author for metric in Metric}
        assert first == {Metric.geomean: "few", Metric.fast_1: "many", Metric.sol: "many"}

    def test_a_problem_nobody_solved_has_a_row(self) -> None:
        rows = leaderboard([record(status=Status.crashed)], by=By.problem)
        assert [(row.problem, row.author, row.reason) for row in rows] == [("level1/1", None, "no solution passed")]

    def test_columns_are_stable_and_json(self) -> None:
        row = leaderboard([record(speedup=2.0, half=0.01)])[0].to_json()
        json.dumps(row, allow_nan=False)
        assert list(row) == [
            "device", "processor", "workload", "baseline", "rank", "author", "problem", "solution", "status", "speedup",
            "speedup_low", "speedup_high", "sol_fraction", "results", "passed", "untimed", "disqualified", "unjudged",
            "fast_0", "fast_0.5", "fast_0.8", "fast_1", "fast_1.5", "fast_2", "reason", "precision",
            "same_within", "driver", "display_name", "model", "kernelbench_rules",
            "backward_s", "reference_backward_s", "held_bytes", "reference_held_bytes",
            "secret_shapes", "specialisation_gap",
        ]  # fmt: skip

    def test_no_records(self) -> None:
        assert leaderboard([]) == ()
        assert score([]).results == 0


def test_what_is_asked_for_by_its_name_is_what_it_names() -> None:
    records = [record("a", speedup=speedup, solution=f"s{speedup}") for speedup in (2.0, 3.0)]
    for by in By:
        assert leaderboard(records, by=by.value) == leaderboard(records, by=by)  # type: ignore[arg-type]
    entries = entries_of(records)
    for selection in Selection:
        assert select(entries, selection.value) == select(entries, selection)  # type: ignore[arg-type]
    for wrong in ({"by": "x"}, {"metric": "x"}, {"selection": "x"}):
        with pytest.raises(ValueError, match="'x' is not a valid"):
            leaderboard(records, **wrong)  # type: ignore[arg-type]
