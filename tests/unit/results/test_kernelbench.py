"""KernelBench's files read and written: its metrics, odd forms, a run that the leaderboard understands, and back."""

from __future__ import annotations

import json
import math
import resource
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.core.choices import DeviceKind
from harness.core.problem import digest_text
from harness.core.record import Record
from harness.core.status import Status
from harness.results.kernelbench import export_run, import_results
from harness.results.kernelbench.formats import KernelBenchError, KernelBenchSample, read_baseline, read_eval_results
from harness.results.kernelbench.importing import EXCESSIVE_SPEEDUP, IMPLAUSIBLE_TIME, LABEL, OTHER_HARDWARE
from harness.results.kernelbench.metrics import metrics, pass_at_k_document
from harness.results.leaderboard import By, leaderboard
from harness.results.reader import StoreUnavailable
from harness.results.scoring import entries_of
from harness.results.writer import RunStore

GPU = "NVIDIA H100 80GB HBM3"


def entry(sample: int = 0, *, compiled: bool = True, correct: bool = True, ms: float = -1.0, **metadata: Any) -> Any:
    stats = {"mean": ms, "std": 0.1, "min": ms, "max": ms, "num_trials": 100} if ms > 0 else {}
    return {
        "sample_id": sample,
        "compiled": compiled,
        "correctness": correct,
        "metadata": {"hardware": GPU, "device": "cuda:0", **metadata},
        "runtime": ms,
        "runtime_stats": stats,
    }


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))  # NaN is written as their scripts write it
    return path


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A run folder as their scripts leave it: several samples, the older form, null, NaN, and failures of each kind."""
    folder = tmp_path / "runs" / "some_model"
    write(
        folder / "eval_results.json",
        {
            "1": [entry(0, ms=0.2), entry(1, correct=False, correctness_issue="Output mismatch")],
            "2": entry(correct=False, correctness_issue="Output shape mismatch: Expected [4], got [5]"),
            "3": [entry(ms=0.3)],
            "4": None,
            "5": [None, entry(1, compiled=False, correct=False, compilation_error="no `;`", ms=-1.0)],
            "10": [entry(correct=False, runtime_error="boom", runtime_error_name="builtins.RuntimeError")],
            "11": [entry(correct=False, max_difference=["0.5", "0.25"]) | {"runtime": math.nan}],
            "12": [entry(compiled=False, correct=False, cuda_error="CUDA Error: illegal access")],
        },
    )
    times = {"mean": 0.1, "std": 0.0, "min": 0.1, "max": 0.1, "num_trials": 100, "hardware": GPU, "device": "cuda:0"}
    write(
        folder / "baseline_time_torch.json",
        {
            "level1": {
                "1_one.py": times,
                "2_two.py": times,
                "3_three.py": None,
                "4_four.py": times,
                "13_thirteen.py": {**times, "mean": math.nan},
            },
            "level2": {"1_other.py": times},
        },
    )
    (folder / "level_1_problem_1_sample_0_kernel.py").write_text("class ModelNew: ...\n")
    return folder


def test_the_metrics_of_the_public_test_vectors() -> None:
    found = metrics([1, 0, 1, 1, 0], [0.1, 0.15, 0.2, 0.05, 0.3], [0.2, 0.15, 0.3, 0.01, 0.2])
    assert found.geomean == pytest.approx(1.185631101, abs=1e-9)
    assert (found.fast_p[1.0], found.fast_p[0.5]) == (0.2, 0.4)
    found = metrics([1, 1, 1, 1, 0], [0.24, 0.31, 100.0, 0.0001, 0.3], [0.3, 0.3, 200.0, 0.0001, 0.3])
    assert found.geomean == pytest.approx(0.801816719, abs=1e-9)
    assert (found.fast_p[1.0], found.fast_p[0.5], found.fast_p[0.0]) == (0.2, 0.6, 0.8)
    assert set(found.fast_p) == {0.0, 0.5, 0.8, 1.0, 1.5, 2.0}


@pytest.mark.parametrize("absent", [-1.0, math.nan, math.inf, 0.0, None])
def test_a_failure_or_a_missing_time_can_not_spoil_a_mean(absent: float | None) -> None:
    found = metrics([1, 0, 1], [1.0, 1.0, absent], [0.5, absent, 0.5])
    assert found.geomean == 2.0
    assert (found.correct, found.fast_p[0.0], found.fast_p[1.0]) == (2, 2 / 3, 1 / 3)
    assert metrics([0, 0], [1.0, 1.0], [absent, absent]).geomean is None
    assert metrics([0, 0], [1.0, 1.0], [absent, absent]).fast_p[1.0] == 0.0
    untimed = metrics([1, 0], [absent, absent], [0.5, 0.5]).fast_p
    assert (untimed[0.0], untimed[0.5], untimed[1.0]) == (0.5, None, None), "not 0: nothing is known of their speed"


def test_pass_at_k_has_their_keys_and_values() -> None:
    samples = [KernelBenchSample(problem=1, sample=n, compiled=True, correct=n < 2) for n in range(4)]
    samples += [KernelBenchSample(problem=2, sample=0), KernelBenchSample(problem=2, sample=1)]
    found = pass_at_k_document(samples, ks=(1, 2, 4))
    # 1 - C(2, 2) / C(4, 2)
    assert found["problems"]["1"] == {
        "total_samples": 4,
        "correct_samples": 2,
        "pass@1": pytest.approx(0.5),
        "pass@2": pytest.approx(5 / 6),
        "pass@4": 1.0,
    }
    assert found["problems"]["2"] == {"total_samples": 2, "correct_samples": 0, "pass@1": 0.0, "pass@2": 0.0}
    assert found["averages"] == {
        "avg_pass@1": pytest.approx(0.25),
        "avg_pass@2": pytest.approx(5 / 12),
        "avg_pass@4": pytest.approx(0.5),
    }
    assert found["metadata"]["pass@4_count"] == 1
    assert found["metadata"]["total_evaluated_samples"] == 6
    json.dumps(found, allow_nan=False)


def test_import_makes_a_run_that_the_leaderboard_understands(theirs: Path, tmp_path: Path) -> None:
    done = import_results(
        theirs / "eval_results.json",
        tmp_path / "run",
        level=1,
        author="some_model",
        baselines=[theirs / "baseline_time_torch.json"],
    )
    held = {(item.problem, item.sample): item for item in RunStore.open(tmp_path / "run").records()}
    assert {key: item.status for key, item in held.items()} == {
        ("level1/1", 0): Status.passed,
        ("level1/1", 1): Status.wrong_value,
        ("level1/2", 0): Status.wrong_shape,
        ("level1/3", 0): Status.passed,
        ("level1/4", 0): Status.harness_error,
        ("level1/5", 0): Status.harness_error,
        ("level1/5", 1): Status.compile_error,
        ("level1/10", 0): Status.runtime_error,
        ("level1/11", 0): Status.wrong_value,
        ("level1/12", 0): Status.cuda_error,
    }
    first = held["level1/1", 0]
    assert first.speedup == pytest.approx(0.5)
    assert first.timing is not None
    assert first.timing["solution"]["device"]["mean_s"] == pytest.approx(0.2e-3)
    assert first.labels == (LABEL,)
    assert first.solution_digest == digest_text("class ModelNew: ...\n")
    assert held["level1/3", 0].speedup is None
    assert "no `;`" in held["level1/5", 1].reason
    # 6 problems whose sample 0 is not null, and one that only the baseline has.
    assert (done.metrics.problems, done.metrics.correct) == (7, 2)
    assert done.metrics.geomean == pytest.approx(0.5)
    assert done.metrics.fast_p[0.0] == pytest.approx(2 / 7)
    assert any("problems of the baseline without an entry: 1;" in note for note in done.notes)
    (row,) = leaderboard(done.records, by=By.author)
    assert (row.passed, row.results, row.unjudged) == (2, 7, 2)
    assert row.speedup == pytest.approx(0.5)
    assert any("null entries: 2;" in note for note in done.notes)


def test_null_entries_count_in_no_figure(tmp_path: Path) -> None:
    path = write(tmp_path / "eval_results.json", {"1": [entry(ms=0.2)], "2": None, "3": [None]})
    baseline = write(tmp_path / "b.json", {"level1": {f"{number}_x.py": {"mean": 0.4} for number in (1, 2, 3)}})
    done = import_results(path, tmp_path / "run", level=1, author="m", baselines=[baseline])
    assert (done.metrics.problems, done.metrics.fast_p[1.0], done.pass_at_k["averages"]["avg_pass@1"]) == (1, 1.0, 1.0)
    (row,) = leaderboard(done.records, by=By.author)
    assert (row.passed, row.results, row.unjudged, row.fast_p[1.0]) == (1, 1, 2, 1.0)
    nothing = write(tmp_path / "null" / "eval_results.json", {"1": None})
    assert import_results(nothing, tmp_path / "n", level=1, author="m").metrics.fast_p[0.0] is None


def test_what_ran_on_a_cpu_is_not_ranked_among_gpus(tmp_path: Path) -> None:
    on_cpu = {"hardware": "Some Xeon", "device": "cpu"}
    held = {"1": [{**entry(), "metadata": on_cpu}], "2": [{**entry(correct=False), "metadata": {}}], "3": [entry()]}
    path = write(tmp_path / "eval_results.json", held)
    ours = {item.problem: item for item in import_results(path, tmp_path / "run", level=1, author="m").records}
    assert (ours["level1/1"].device, ours["level1/1"].environment) == (DeviceKind.HOST, {"cpu": "Some Xeon"})
    assert (ours["level1/2"].device, ours["level1/2"].environment) == (DeviceKind.CUDA, {})
    assert (ours["level1/3"].device, ours["level1/3"].environment) == (DeviceKind.CUDA, {"gpu": GPU})
    del held["3"]
    write(path, held)
    alone = import_results(path, tmp_path / "alone", level=1, author="m").records
    assert {item.device for item in alone} == {DeviceKind.HOST}, "a failure that says nothing ran where the others did"


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "eval_results.json"
    path.write_text(f'{{"1": [{json.dumps(entry())}], "1": null}}')
    with pytest.raises(KernelBenchError, match="has the key '1' twice; remove one of them"):
        import_results(path, tmp_path / "run", level=1, author="m")


def test_what_does_not_fit_on_the_disk_leaves_no_part_of_a_run(theirs: Path, tmp_path: Path) -> None:
    path, into = theirs / "eval_results.json", tmp_path / "results" / "x"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2500, limits[1]))  # stands for a full disk: `run.yaml` fits
    try:
        with pytest.raises(StoreUnavailable, match="nothing is kept; free disk space"):
            import_results(path, into, level=1, author="some-model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not into.exists()
    assert len(import_results(path, into, level=1, author="some-model").records) > 1


def test_a_baseline_from_another_gpu_is_labelled(theirs: Path, tmp_path: Path) -> None:
    times = {"mean": 0.1, "hardware": "NVIDIA L40S"}
    baseline = write(tmp_path / "b.json", {"level1": {"1_one.py": times}})
    done = import_results(theirs / "eval_results.json", tmp_path / "run", level=1, author="m", baselines=[baseline])
    assert [item.problem for item in done.records if OTHER_HARDWARE in item.labels] == ["level1/1"]
    assert any("different GPUs" in note for note in done.notes)


def test_a_compiled_baseline_gives_a_speedup_of_its_own(theirs: Path, tmp_path: Path) -> None:
    eager = theirs / "baseline_time_torch.json"
    compiled = write(
        theirs / "baseline_time_torch_compile_inductor_default.json", {"level1": {"1_one.py": {"mean": 0.05}}}
    )
    results = theirs / "eval_results.json"
    both = import_results(results, tmp_path / "both", level=1, author="m", baselines=[eager, compiled]).records[0]
    assert both.speedup == pytest.approx(0.5)
    assert [entry.speedup for entry in entries_of([both], baseline="compile")] == [pytest.approx(0.25)]
    only = import_results(results, tmp_path / "only", level=1, author="m", baselines=[compiled])
    assert only.records[0].speedup is None
    assert only.metrics.geomean == pytest.approx(0.25)
    assert any("no eager times" in note for note in only.notes)
    done = export_run([both], tmp_path / "back", file_names={"level1/1": "1_one.py"})
    back = read_baseline(next(path for path in done.files if path.name == compiled.name))
    assert back[1][1].mean_ms == pytest.approx(0.05)
    with pytest.raises(KernelBenchError, match="a second file of baseline 'eager'"):
        import_results(results, tmp_path / "x", level=1, author="m", baselines=[eager, write(tmp_path / "b.json", {})])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON"),
        ("[]", "must be a JSON object"),
        ('{"x": []}', "is no problem number"),
        ('{"1": [{"compiled": true}]}', "correctness must be true or false"),
        ('{"1": [{"compiled": true, "correctness": true, "sample_id": -1}]}', "sample_id"),
        ('{"1": [3]}', "problem 1, entry 0"),
        (f'{{"1": [{{"compiled": true, "correctness": true, "sample_id": 1{"0" * 5000}}}]}}', "sample_id must be"),
        (
            f'{{"1": {{"compiled": true, "correctness": true, "metadata": {{"a": {"[" * 900}{"]" * 900}}}}}}}',
            "problem 1, entry 0, metadata: nests more than 20 levels",
        ),
        (f'{{"1": {"[" * 100_000}', "nests more levels than Python reads"),
    ],
)
def test_what_can_not_be_understood_is_named(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "eval_results.json"
    path.write_text(content)
    with pytest.raises(KernelBenchError, match=said) as caught:
        read_eval_results(path, level=1)
    assert str(path) in str(caught.value)


V2 = {"ref_runtime": 2.0, "ref_runtime_stats": {"mean": 2.0, "std": 0.01}}


def test_the_references_time_in_the_same_evaluation_gives_the_speedup(theirs: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "mine/eval_results.json", {"1": [entry(ms=0.5) | V2], "2": [entry(ms=0.5)]})
    done = import_results(path, tmp_path / "run", level=1, author="me")
    one, two = RunStore.open(tmp_path / "run").records()
    assert (one.speedup, two.speedup) == (4.0, None)
    assert OTHER_HARDWARE not in one.labels
    assert one.timing is not None
    assert one.timing["kernelbench"]["baseline_stats_ms"]["eager"]["std"] == 0.01
    assert done.metrics.geomean == 4.0
    assert any("(ref_runtime)" in note for note in done.notes)
    # A file of baseline times that the user names comes first.
    baseline = write(tmp_path / "baseline_time_torch.json", {"level1": {"1_one.py": {"mean": 1.0}}})
    import_results(path, tmp_path / "run2", level=1, author="me", baselines=[baseline])
    assert [record.speedup for record in RunStore.open(tmp_path / "run2").records()] == [2.0, None]


def test_a_speedup_that_kernelbench_flags_is_labelled(tmp_path: Path) -> None:
    flagged = entry(0, ms=0.1, excessive_speedup=True) | V2
    path = write(tmp_path / "eval_results.json", {"1": [flagged, entry(1, ms=1.9, excessive_speedup=False) | V2]})
    done = import_results(path, tmp_path / "run", level=1, author="me")
    assert [(record.speedup, EXCESSIVE_SPEEDUP in record.labels) for record in done.records] == [
        (20.0, True),
        (pytest.approx(2.0 / 1.9), False),
    ]
    assert done.records[0].reason.endswith("; KernelBench flags its speedup as excessive; 20x eager")
    assert any("flags 1 speedups as excessive" in note for note in done.notes)


@pytest.mark.parametrize("text", ["1e-9", "1" + "0" * 400, "1" + "0" * 5000, "Infinity", "1e300"])
@pytest.mark.parametrize("name", ["runtime", "ref_runtime"])
def test_a_time_that_no_call_takes_ranks_nowhere(tmp_path: Path, text: str, name: str) -> None:
    odd = entry(0, ms=1.0) | V2 | {name: "HERE"}
    path = write(tmp_path / "eval_results.json", {"1": [odd, entry(1, ms=1.0) | V2]})
    path.write_text(path.read_text().replace('"HERE"', text))
    done = import_results(path, tmp_path / "run", level=1, author="me")
    first, second = RunStore.open(tmp_path / "run").records()
    assert (first.status, first.speedup, second.speedup) == (Status.passed, None, 2.0)
    assert IMPLAUSIBLE_TIME in first.labels
    assert "is no time of a call (plausible: 0.0001 to 1e+09 ms)" in first.reason
    assert any("1 samples have no speedup: their times are outside" in note for note in done.notes)
    baseline = tmp_path / "baseline_time_torch.json"
    baseline.write_text(f'{{"level1": {{"1_one.py": {{"mean": {text}}}}}}}')
    with pytest.raises(KernelBenchError, match="is no time of a reference"):
        import_results(path, tmp_path / "run2", level=1, author="me", baselines=[baseline])


def test_an_implausible_time_that_no_speedup_uses_changes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "eval_results.json", {"1": [entry(0, ms=1.0) | V2 | {"ref_runtime": 1e-9}]})
    baseline = write(tmp_path / "baseline_time_torch.json", {"level1": {"1_one.py": {"mean": 3.0}}})
    (record,) = import_results(path, tmp_path / "run", level=1, author="me", baselines=[baseline]).records
    assert (record.speedup, IMPLAUSIBLE_TIME in record.labels) == (3.0, False)


def test_a_sample_given_twice_and_a_strange_baseline_are_errors(tmp_path: Path) -> None:
    twice = write(tmp_path / "e.json", {"1": [entry(0), entry(0)]})
    with pytest.raises(KernelBenchError, match="problem 1 has sample 0 twice"):
        read_eval_results(twice, level=1)
    with pytest.raises(KernelBenchError, match="no level"):
        read_baseline(write(tmp_path / "b.json", {"hard": {}}))
    with pytest.raises(KernelBenchError, match="no file name of a problem"):
        read_baseline(write(tmp_path / "b.json", {"level1": {"matmul.py": None}}))


def record(problem: int, sample: int | None, status: Status, *, ms: float | None = None, author: str = "ann") -> Record:
    timing = None
    if ms is not None:
        timing = {
            "solution": {"samples_s": [[ms / 1e3, ms / 1e3], [ms / 1e3]]},
            "reference": {"samples_s": [[0.004, 0.002], [0.003]]},
        }
    name = f"{problem}_x.py" if sample is None else f"{problem}_x_sample{sample}.py"
    return Record(
        problem=f"level1/{problem}",
        author=author,
        solution=f"{author}/level1/{name}",
        sample=sample,
        device=DeviceKind.CUDA,
        workload="full",
        status=status,
        reason="said so",
        speedup=3.0 / ms if ms else None,
        timing=timing,
        environment={"gpu": GPU},
    )


def test_export_writes_their_keys_units_and_absent_values(tmp_path: Path) -> None:
    records = [
        record(16, 0, Status.passed, ms=1.5),
        record(16, 3, Status.wrong_value),
        record(16, None, Status.compile_error),
        record(17, None, Status.harness_error),
        record(9, None, Status.passed),
    ]
    done = export_run(records, tmp_path, file_names={"level1/16": "16_matmul.py", "level1/9": "9_nine.py"})
    assert {path.name for path in done.files} == {
        "eval_results.json",
        "baseline_time_torch.json",
        "pass_at_k_results.json",
    }
    results = json.loads((tmp_path / "eval_results.json").read_text())
    assert list(results) == ["9", "16"]
    assert [item["sample_id"] for item in results["16"]] == [0, 1, 3]
    first, second, third = results["16"]
    assert set(first) == {"sample_id", "compiled", "correctness", "metadata", "runtime", "runtime_stats"}
    assert first["runtime"] == pytest.approx(1.5)
    assert set(first["runtime_stats"]) == {"mean", "std", "min", "max", "num_trials", "hardware", "device"}
    assert (second["compiled"], second["correctness"], second["runtime"], second["runtime_stats"]) == (
        False,
        False,
        -1.0,
        {},
    )
    assert (third["compiled"], third["correctness"]) == (True, False)
    # Right but not timed: correct, and no time.
    assert (results["9"][0]["correctness"], results["9"][0]["runtime"]) == (True, -1.0)
    baseline = json.loads((tmp_path / "baseline_time_torch.json").read_text())
    assert baseline["level1"]["16_matmul.py"]["mean"] == pytest.approx(3.0)
    assert json.loads((tmp_path / "pass_at_k_results.json").read_text())["problems"]["16"]["correct_samples"] == 1
    assert any("1 left out" in note for note in done.notes)


def test_what_is_exported_comes_back_the_same(tmp_path: Path) -> None:
    records = [
        record(16, 0, Status.passed, ms=1.5),
        record(16, 1, Status.low_precision),
        record(17, 0, Status.timeout),
        record(18, 0, Status.disqualified),
    ]
    export_run(records, tmp_path / "kb", file_names={})
    theirs = (tmp_path / "kb" / "eval_results.json").read_bytes()
    with pytest.raises(KernelBenchError, match=r"eval_results\.json exists; .*--force"):
        export_run(records[:1], tmp_path / "kb", file_names={})
    assert (tmp_path / "kb" / "eval_results.json").read_bytes() == theirs
    export_run(records, tmp_path / "kb", file_names={}, overwrite=True)
    done = import_results(
        tmp_path / "kb" / "eval_results.json",
        tmp_path / "run",
        level=1,
        author="ann",
        baselines=[tmp_path / "kb" / "baseline_time_torch.json"],
        pass_at_k=tmp_path / "kb" / "pass_at_k_results.json",
    )
    assert [(r.problem, r.sample, r.status) for r in done.records] == [(r.problem, r.sample, r.status) for r in records]
    assert done.records[0].speedup == pytest.approx(2.0)
    assert done.notes == ()


def test_several_authors_get_a_folder_each_and_mixed_workloads_are_refused(tmp_path: Path) -> None:
    two = [record(1, None, Status.passed, ms=1.0), record(1, None, Status.wrong_value, author="bob")]
    export_run(two, tmp_path / "both", file_names={})
    assert (tmp_path / "both" / "ann" / "level1" / "eval_results.json").is_file()
    # The reference was timed beside ann's solution; it is the same reference for bob.
    assert (tmp_path / "both" / "bob" / "level1" / "baseline_time_torch.json").is_file()
    export_run(two, tmp_path / "one", file_names={}, author="bob")
    assert (tmp_path / "one" / "eval_results.json").is_file()
    with pytest.raises(KernelBenchError, match="nothing to export"):
        export_run(two, tmp_path / "none", file_names={}, level=2)


@pytest.mark.parametrize("author", ["../out", "/tmp/out", "x/../../out", ".", ".."])
def test_no_author_leads_out_of_the_folder_that_is_exported_to(tmp_path: Path, author: str) -> None:
    two = [record(1, None, Status.passed, ms=1.0), record(1, None, Status.wrong_value, author=author)]
    with pytest.raises(KernelBenchError, match="is no valid folder name; export this author with --author"):
        export_run(two, tmp_path / "kb", file_names={})
    assert list(tmp_path.iterdir()) == []
    export_run(two, tmp_path / "alone", file_names={}, author=author)
    assert (tmp_path / "alone" / "eval_results.json").is_file()


def test_the_commands(theirs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "results" / "their-run"
    baseline = theirs / "baseline_time_torch.json"
    call = ["import", "kernelbench", str(theirs / "eval_results.json"), "--baseline-file", str(baseline)]
    assert main([*call, "--level", "1", "--out", str(run)]) == 0
    shown = capsys.readouterr()
    assert "fast_0.5" in shown.out
    assert "avg_pass@1" in shown.out
    assert main(["leaderboard", str(run), "--csv", "-"]) == 0
    assert "some_model" in capsys.readouterr().out
    assert main(["export", "kernelbench", str(run), "--out", str(tmp_path / "back"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["files"]) == 3
    back = json.loads((tmp_path / "back" / "eval_results.json").read_text())
    assert back["1"][0]["runtime"] == pytest.approx(0.2)
    assert main([*call, "--level", "7", "--out", str(tmp_path / "x")]) == 2
    assert "contains no times for level7" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
