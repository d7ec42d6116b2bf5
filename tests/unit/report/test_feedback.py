"""Feedback texts: golden ones for real records, and what must hold for any record, hostile ones included."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.catalog.source_lookup import SourceFinder
from harness.cli import main
from harness.core.choices import DeviceKind
from harness.core.problem import digest_text
from harness.core.record import Record
from harness.core.status import Status
from harness.report.feedback import feedback
from tests.support.paths import TESTS

HERE = TESTS
GOLDEN = HERE / "golden" / "feedback"


def records(path: Path) -> list[Record]:
    return [Record.from_json(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


KEPT = [item for name in ("h200", "host") for item in records(HERE / "golden" / "records" / f"{name}.jsonl")]
COMMITTED = [item for path in sorted((HERE.parent / "results").glob("*/records.jsonl")) for item in records(path)]
SOURCES = {digest_text(text): text for path in (HERE / "golden" / "sources").iterdir() if (text := path.read_text())}


def name_of(record: Record) -> str:
    return f"{record.device.value}-{Path(record.solution).stem}-{record.status.value}"


@pytest.mark.parametrize("record", KEPT, ids=name_of)
def test_the_text_is_the_golden_one(record: Record) -> None:
    text = feedback(record, source=SOURCES.get(record.solution_digest))
    assert text == (GOLDEN / f"{name_of(record)}.txt").read_text(encoding="utf-8")


def test_every_golden_text_has_its_record() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {name_of(record) for record in KEPT}


def expected_values(held: Any) -> list[float]:
    """Every float under a key `expected`, however deep."""
    if isinstance(held, dict):
        own = [held["expected"]] if isinstance(held.get("expected"), float) else []
        return own + [value for inner in held.values() for value in expected_values(inner)]
    return [value for inner in held for value in expected_values(inner)] if isinstance(held, list) else []


def test_there_are_committed_records_with_expected_values() -> None:
    assert sum(len(expected_values(dict(record.evidence))) for record in COMMITTED) >= 4


@pytest.mark.parametrize("record", COMMITTED, ids=name_of)
def test_of_expected_values_two_digits_are_told_and_of_seeds_nothing(record: Record) -> None:
    text = feedback(record)
    assert record.status.value.replace("_", " ") in text
    assert "seed" not in text
    for value in expected_values(dict(record.evidence)):
        for digits in range(3, 17):
            more = f"{value:.{digits}g}"
            if len(more.replace(".", "").replace("-", "").strip("0")) > 2:
                assert more not in text.replace(f"got {more}", "")
    for told in re.findall(r"expected about (\S+)", text):
        number = told.rstrip(";,)").split("e")[0]
        assert len(number.replace(".", "").replace("-", "").strip("0")) <= 2, told


def failing(status: Status, **changes: Any) -> Record:
    base: dict[str, Any] = {
        "problem": "level1/16",
        "author": "ann",
        "solution": "ann/level1/16_x.py",
        "device": DeviceKind.CUDA,
        "workload": "full",
        "status": status,
        "reason": "as tested",
    }
    return Record(**{**base, **changes})


@pytest.mark.parametrize("status", [item for item in Status if item is not Status.passed])
def test_every_status_has_a_text_without_any_evidence(status: Status) -> None:
    text = feedback(failing(status))
    assert "as tested" in text
    assert text.endswith("\n")


def output(**changes: Any) -> dict[str, Any]:
    return {
        "name": "output",
        "dtype": "float32",
        "shape": [64, 66],
        "count": 4224,
        "rms_error": 0.3,
        "rest_rms_error": 1e-8,
        "wrong": 128,
        "first": {"index": [0, 0], "got": 1.0, "expected": 2.345678},
        "worst": None,
        "unwritten": 0,
        "non_finite_mismatches": 0,
        "limits": {"rms": 1e-4, "max": 1e-3, "note": ""},
        **changes,
    }


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("every 33rd column", "how threads map to indices"),
        ("the last 2 columns (the last partial tile of 64)", "bounds check of the last tile"),
        ("transposed", "rows and columns are swapped"),
        ("a constant factor: everything is 2 times what is expected", "one factor"),
        ("all zero", "check that the kernel runs"),
        ("scattered over 3 % of the places", "a data race is likely"),
    ],
)
def test_a_pattern_is_told_with_what_it_suggests(pattern: str, hint: str) -> None:
    text = feedback(failing(Status.wrong_value, evidence={"outputs": [output(pattern=pattern)]}))
    assert f"pattern: {pattern}" in text
    assert hint in text
    assert "expected about 2.3\n" in text
    assert "the other values are correct" in text


def test_unwritten_values_are_named_before_their_pattern() -> None:
    text = feedback(failing(Status.wrong_value, evidence={"outputs": [output(unwritten=12, pattern="all zero")]}))
    assert "12 values were never written" in text
    assert "never written: check the grid" in text
    assert "check that the kernel runs" not in text


def test_where_only_places_without_a_number_are_wrong_no_number_is_called_the_worst() -> None:
    right = {"index": [0, 0], "got": 0.25, "expected": 0.25}
    held = output(
        first={"index": [3, 4], "got": "nan", "expected": 0.5}, worst=right, non_finite_mismatches=128, rms_error=0.0
    )
    for device, hint in ((DeviceKind.HOST, "fills new memory with NaN"), (DeviceKind.CUDA, "never written, 0 / 0")):
        record = failing(Status.non_finite, device=device, evidence={"outputs": [held | {"max_error": 0.0}]})
        text = feedback(record)
        assert "first wrong at [3, 4]: got nan, expected about 0.5" in text
        assert "worst wrong" not in text
        assert "error over all finite values" in text
        assert hint in text
    worse = feedback(failing(Status.non_finite, evidence={"outputs": [held | {"max_error": 0.7}]}))
    assert "worst wrong at [0, 0]" in worse
    same = output(worst={"index": [0, 0], "got": 1.0, "expected": 2.345678}, max_error=0.7)
    assert "worst wrong" not in feedback(failing(Status.wrong_value, evidence={"outputs": [same]}))


def test_failing_on_one_kind_of_inputs_alone_says_what_that_suggests() -> None:
    variants = {"own": {"calls": 3, "failed": 0}, "structured": {"calls": 2, "failed": 2}}
    text = feedback(failing(Status.wrong_value, evidence={"variants": variants}))
    assert "an index that is off at a border" in text
    both = {name: {"calls": 3, "failed": 1} for name in variants}
    assert "an index that is off" not in feedback(failing(Status.wrong_value, evidence={"variants": both}))


ERROR = {"tool": "nvcc", "message": "expected a ';'", "file": "cuda source 1", "line": 2, "solution_line": 3}


def test_a_compiler_error_is_quoted_from_the_file_that_was_judged_and_from_no_other() -> None:
    source = "a = 1\nb = 2\nc = 3 broken\nd = 4\n"
    record = failing(Status.compile_error, build={"compiler_error": ERROR}, solution_digest=digest_text(source))
    text = feedback(record, source=source)
    assert "cuda source 1, line 2 (line 3 of the solution): expected a ';'" in text
    assert "> 3 | c = 3 broken" in text
    assert "| " not in feedback(record, source=source + "# edited since\n")


def test_the_end_of_the_log_shows_the_exception_and_not_all_before_it() -> None:
    log = "".join(f"line {n}\n" for n in range(100)) + "RuntimeError: shapes do not match\n"
    text = feedback(failing(Status.runtime_error), log=log)
    assert "RuntimeError: shapes do not match" in text
    assert "[… 86 lines before]" in text
    assert "line 10\n" not in text


WAY_IN = """Traceback (most recent call last):
  File "/opt/harness/contestant.py", line 355, in forward
    result = self._model(*arguments)
             ^^^^^^^^^^^^^^^^^^^^^^^
"""
OWN_FRAMES = """  File "/home/sandbox/16_x.py", line 4, in forward
    return self.scale(x)
  File "/opt/torch/functional.py", line 9, in scale
    raise ValueError(
"""
RAISED = "ValueError: no such scale\n  hint: 1 or 2\n"


def test_a_traceback_begins_at_the_solution_and_stands_once() -> None:
    record = failing(Status.runtime_error, solution="ann/level1/16_x.py")
    whole = WAY_IN + OWN_FRAMES + RAISED
    log = f"\n== import ==\n{whole}\n== output of the solution's process ==\nprinted\n{whole}\n== details ==\n{whole}\n"
    end = feedback(record, log=log).partition("End of the log\n")[2]
    told = ["== output of the solution's process ==", "printed", "== details ==", "Traceback (most recent call last):"]
    assert [line.strip() for line in end.splitlines()][:9] == [
        *told,
        *(line.strip() for line in OWN_FRAMES.replace("/home/sandbox/", "").splitlines()),
        "ValueError: no such scale",
    ]
    assert "hint: 1 or 2" in end
    assert "contestant" not in end
    assert "import" not in end


def test_one_exception_is_told_once_although_two_processes_raised_it_on_other_ways() -> None:
    record = failing(Status.runtime_error, solution="ann/level1/16_x.py")
    other_way = (
        WAY_IN + '  File "/home/sandbox/solution/16_x.py", line 4, in forward\n    return self.scale(x)\n' + RAISED
    )
    log = f"== import ==\n{other_way}\n== details ==\n{WAY_IN}{OWN_FRAMES}{RAISED}"
    assert feedback(record, log=log).count("Traceback") == 1


def test_frames_of_the_harness_are_left_out_also_below_those_of_the_solution() -> None:
    record = failing(Status.runtime_error, solution="ann/level1/16_x.py")
    log = f'{WAY_IN}{OWN_FRAMES}  File "/opt/harness/untrusted/load_inline.py", line 9, in load\n    built()\n{RAISED}'
    end = feedback(record, log=log).partition("End of the log\n")[2]
    assert "functional.py" in end
    assert "load_inline" not in end
    assert "built()" not in end


def test_the_log_of_a_build_that_succeeded_is_no_news_of_an_exception() -> None:
    record = failing(Status.runtime_error, solution="ann/level1/16_x.py")
    log = f"== building extension m ==\n[1/2] g++ main.cpp\n\n== details ==\n{WAY_IN}{OWN_FRAMES}{RAISED}"
    end = feedback(record, log=log).partition("End of the log\n")[2]
    assert "g++" not in end
    assert "building" not in end
    assert "== details ==" in end


def test_a_traceback_without_a_line_of_the_solution_is_its_exception() -> None:
    record = failing(Status.runtime_error, solution="ann/level1/16_x.py")
    end = feedback(record, log=f"== details ==\n{WAY_IN}TypeError: takes 2\n").partition("End of the log\n")[2]
    assert end.splitlines() == ["  == details ==", "  Traceback (most recent call last):", "  TypeError: takes 2"]
    assert "End of the log" not in feedback(record, log="\n== import ==\n\n== import ==\n")


REPORT = {"kind": "data_race", "kernel": "k", "line": 3, "other_line": 5, "message": "racing", "thread": [1, 0, 0]}


def test_one_race_seen_from_both_threads_is_told_once() -> None:
    swapped = {**REPORT, "line": 5, "other_line": 3}
    text = feedback(failing(Status.data_race, evidence={"reports": [REPORT, swapped]}))
    assert text.count("data race in k") == 1


def test_lines_of_the_solution_are_quoted_and_lines_of_its_texts_are_named() -> None:
    source = 'import torch\nCUDA = r"""\n__global__ void k(float* x) {\n  x[0] = 1;\n}\n"""\n'
    placed = {**REPORT, "file": "1_x.py", "other_file": "1_x.py"}
    record = failing(Status.data_race, evidence={"reports": [placed]}, solution_digest=digest_text(source))
    text = feedback(record, source=source)
    assert "data race in k, line 3 of the solution: racing" in text
    assert 'line 3 of the solution:\n        2 | CUDA = r"""\n      > 3 | __global__ void k(float* x) {' in text
    assert "> 5 | }" in text
    of_a_text = {**REPORT, "file": "cuda source 1", "other_file": "cuda source 1"}
    record = failing(Status.data_race, evidence={"reports": [of_a_text]}, solution_digest=digest_text(source))
    text = feedback(record, source=source)
    assert "data race in k, line 3 of cuda source 1: racing" in text
    assert "of the solution" not in text


def test_a_report_of_compute_sanitizer_is_placed_in_the_file_already() -> None:
    """As `harness.referee.audit.sanitizer` writes them: lines of the solution's file, no array, no access."""
    source = "import torch\nCUDA = 'first'\nlast = 1\n"
    report = {
        "kind": "memory_error",
        "tool": "compute-sanitizer memcheck",
        "message": "Invalid __global__ read of size 4 bytes",
        "kernel": "k",
        "file": "16_x.py",
        "line": 2,
        "thread": [1, 0, 0],
        "block": [0, 0, 0],
        "count": 3,
    }
    record = failing(Status.memory_error, evidence={"reports": [report]}, solution_digest=digest_text(source))
    text = feedback(record, source=source)
    assert "memory error in k, line 2 of the solution: Invalid __global__ read" in text
    assert "> 2 | CUDA = 'first'" in text
    assert "by thread [1, 0, 0] of block [0, 0, 0]\n" in text


def test_what_happened_at_other_sizes_and_while_timing_is_told() -> None:
    small = {"small_workload": {"status": "wrong_value", "reason": "3 of 9 values wrong"}}
    assert "At the problem's small sizes\n  wrong_value: 3 of 9" in feedback(failing(Status.passed, evidence=small))
    right = {"small_workload": {"status": "passed", "reason": "right"}}
    assert "small sizes" not in feedback(failing(Status.passed, evidence=right))
    assert "found in a timed call" in feedback(failing(Status.wrong_value, evidence={"failed_while": "timing"}))


def test_the_audit_s_tools_are_named() -> None:
    tools = {
        "memcheck": {"wall_s": 1.0, "findings": 0},
        "racecheck": {"not_run": "could not begin"},
        "synccheck": {"wall_s": 20.0, "findings": 0, "ended": "a call was not over within 20 s"},
    }
    text = feedback(failing(Status.passed, evidence={"audit": {"tools": tools}}))
    assert "Checked by compute-sanitizer (memcheck)." in text
    assert "Not checked by racecheck: could not begin." in text
    assert "Not completely checked by synccheck: a call was not over within 20 s." in text
    text = feedback(failing(Status.passed, evidence={"audit": {"not_run": "no room"}}))
    assert "Not checked by compute-sanitizer: no room." in text


HOSTILE = "\x1b[2J\u202e\x07evil\r"


def hostile(held: Any) -> Any:
    """The same structure with every text replaced."""
    if isinstance(held, dict):
        return {key: hostile(value) for key, value in held.items()}
    if isinstance(held, list | tuple):
        return [hostile(value) for value in held]
    return HOSTILE if isinstance(held, str) else held


@pytest.mark.parametrize("record", KEPT, ids=name_of)
def test_texts_of_a_submission_act_on_no_terminal(record: Record) -> None:
    bad = Record(
        problem=HOSTILE,
        author=HOSTILE,
        solution=HOSTILE,
        device=record.device,
        workload="full",
        status=record.status,
        reason=record.reason,
        labels=(HOSTILE,),
        speedup=record.speedup,
        evidence=hostile(dict(record.evidence)),
        timing=hostile(dict(record.timing)) if record.timing else None,
        build=hostile(dict(record.build)) if record.build else None,
    )
    text = feedback(bad, log=HOSTILE)
    assert not set(text) & set("\x1b\u202e\x07\r")


@pytest.mark.parametrize("junk", [None, 7, "text", [1, "x", None], {"a": {"b": [[]]}}, float("inf")])
def test_evidence_of_another_shape_is_passed_over(junk: Any) -> None:
    names = ("outputs", "variants", "reports", "state", "error", "audit")
    for name in names:
        assert "as tested" in feedback(failing(Status.wrong_value, evidence={name: junk}))
    timing = dict.fromkeys(("speedup", "solution", "reference", "speed_of_light", "baselines", "clock"), junk)
    build = {"kernels": junk, "compiler_error": junk}
    passed = failing(Status.passed, speedup=2.0, timing=timing, build=build)
    assert "faster than eager: 2.00x" in feedback(passed)


def test_a_spill_a_launch_floor_and_a_slow_call_are_named() -> None:
    timing = {
        "clock": "CUDA events",
        "solution": {"device": {"median_s": 4e-6, "samples": 9}, "latency": {"median_s": 60e-6}},
        "reference": {"device": {"median_s": 8e-6, "samples": 9}},
        "speedup": {"low": 1.9, "high": 2.1},
        "speed_of_light": {"sol_time_s": 1.8e-6, "bound": "launch", "launch_s": 1.8e-6, "fraction": 0.45},
    }
    kernel = {"kernel": "k", "registers": 255, "spill_stores_bytes": 96, "spill_loads_bytes": 32}
    text = feedback(failing(Status.passed, speedup=2.0, timing=timing, build={"kernels": [kernel]}))
    assert "spills 128 B per thread to memory" in text
    assert "An empty kernel takes 1.80 µs on this GPU" in text
    assert "takes 56.0 µs longer than its GPU work" in text
    assert "fuse the kernels" in text


def timed(median_s: float, *, census: Any = (), kernels: Any = (), **light: Any) -> Record:
    """A record that passed at twice eager's speed; `light` is what of the speed of light is not as usual."""
    limits = {"sol_time_s": 1e-3, "bound": "compute", "memory_s": 1e-4, "launch_s": 2e-6, "fraction": 1e-3 / median_s}
    device = {"device": {"median_s": median_s, "samples": 32}}
    return failing(
        Status.passed,
        speedup=2.0,
        evidence={"census": {"kernels": list(census), "launches": len(census)}},
        build={"kernels": list(kernels)},
        timing={"solution": device, "reference": device, "speed_of_light": {**limits, **light}},
    )


OWN = {"name": "void k<4>(float const*, int)", "kind": "kernel", "owner": "own", "share": 1.0}


def test_a_solution_beyond_the_limit_of_arithmetic_is_held_against_that_of_memory() -> None:
    text = feedback(timed(2e-4, census=[OWN]))

    assert "takes only 20 % of that time. So it does less work than the reference" in text
    assert "Moving the least possible number of bytes takes 100 µs; the solution reaches 50 % of this limit." in text
    assert "Close to the limit" not in text
    further = feedback(timed(5e-4, census=[OWN]))
    assert "reaches 20 % of this limit" in further
    assert "Far from" not in further, "it is beyond the limit that bounds the problem"


def test_speedups_are_told_against_the_baseline_that_they_are_of_and_the_same_is_no_speedup() -> None:
    compiled = {"baseline": "compile", "speedup": {"low": 1.19, "high": 1.21}, "noise_floor": {"log_width": 0.005}}
    rows = {
        "compile": {"speedup": 1.2, "low": 1.19, "high": 1.21, "outcome": "measured"},
        "compile_max_autotune": {"speedup": 1.003, "low": 1.001, "high": 1.005, "outcome": "measured"},
        "eager_tf32": {"speedup": None, "outcome": "wrong", "reason": "secret of a compiler"},
        "eager": {"speedup": 1.5, "low": 1.49, "high": 1.51},
    }
    text = feedback(failing(Status.passed, speedup=1.2, timing=compiled | {"baselines": rows}))
    assert "faster than compile: 1.20x (1.19 to 1.21)" in text
    assert "Over eager: 1.50x (1.49 to 1.51)." in text
    assert "Over compile_max_autotune: same as compile_max_autotune (within 0.50 %)." in text
    assert "Over eager_tf32: no speedup, because this baseline gives wrong values." in text
    assert "Over compile:" not in text

    lacking = compiled | {"speedup": None, "baselines": rows | {"compile": {"speedup": None, "outcome": "failed"}}}
    text = feedback(failing(Status.passed, speedup=None, timing=lacking))
    assert "faster than eager: 1.50x" in text
    assert "Over compile: no speedup, because this baseline did not compile or run." in text


def test_a_short_call_alone_is_told_what_a_launch_takes() -> None:
    assert "An empty kernel takes" in feedback(timed(20e-6, census=[OWN]))
    assert "An empty kernel takes" not in feedback(timed(2e-3, census=[OWN]))


def test_how_often_the_bytes_could_have_been_moved_is_told() -> None:
    slow = feedback(timed(4e-3, census=[OWN], bound="memory"))

    assert "the time suffices to move all data 4.0 times" in slow


def test_near_the_limit_occupancy_is_no_matter() -> None:
    few = OWN | {"occupancy": {"share": 0.12, "blocks": 1, "limiter": "shared memory", "waves": 4.0}}

    assert "because shared memory limits it to 1 block per multiprocessor" in feedback(timed(4e-3, census=[few]))
    assert "occupancy" not in feedback(timed(1.01e-3, census=[few]))


def test_hints_on_kernels_need_a_kernel() -> None:
    copy = {"name": "Memcpy HtoD", "kind": "copy", "owner": None, "share": 1.0}

    text = feedback(timed(4e-3, census=[copy]))

    assert "No own kernel ran" in text
    assert "reuse data in registers" not in text
    assert "reuse data in registers" in feedback(timed(4e-3, census=[OWN]))


def test_kernels_are_called_by_their_plain_names_and_instances_share_a_line() -> None:
    rows = [{"kernel": "k", "registers": count, "spill_stores_bytes": 0} for count in (26, 32)]
    inner = OWN | {"name": "void at::native::(anonymous namespace)::soft<float, 4>(float*, at::Op<void (int)>)"}

    assert "goes to k<4>." in feedback(timed(2e-3, census=[OWN], kernels=rows))
    assert "k: 2 instances, 26 to 32 registers per thread, no spills" in feedback(
        timed(2e-3, census=[OWN], kernels=rows)
    )
    assert "goes to at::native::soft<float, 4>." in feedback(timed(2e-3, census=[inner]))
    built = [row | {"arch": arch} for row, arch in zip(rows, ("sm_80", "sm_90"), strict=True)]
    assert "k: 26 to 32 registers per thread, no" in feedback(timed(2e-3, census=[OWN], kernels=built))


def test_the_time_of_a_short_call_without_its_launch_is_told_where_both_have_it() -> None:
    record = timed(6e-6, census=[OWN])
    both = {
        side: {**record.timing[side], "graph_s": time_s} for side, time_s in (("solution", 2e-6), ("reference", 4e-6))
    }

    text = feedback(replace(record, timing={**record.timing, **both}))

    assert "Without launch overhead (in a CUDA graph): 2.00 µs, eager 4.00 µs (2.00x)." in text
    assert "in a CUDA graph" not in feedback(record)
    both["reference"] |= {"graph_s": 2.02e-6}
    noise = {"noise_floor": {"log_width": 0.05}}
    text = feedback(replace(record, timing={**record.timing, **both, **noise}))
    assert "2.00 µs, eager 2.02 µs (the same)." in text


def test_few_wrong_values_are_told_where_to_look() -> None:
    few = {"outputs": [{"name": "output", "dtype": "float32", "shape": [2048], "count": 2048, "wrong": 1}]}

    assert "first or last term of a loop" in feedback(failing(Status.wrong_value, evidence=few))
    few["outputs"][0]["wrong"] = 1024
    assert "first or last term of a loop" not in feedback(failing(Status.wrong_value, evidence=few))


def test_labels_are_explained() -> None:
    text = feedback(failing(Status.passed, labels=("no_custom_kernel", "degenerate_problem")))

    assert "no_custom_kernel: no kernel of the solution ran" in text
    assert "degenerate_problem: the problem accepts outputs" in text


def test_sources_are_found_by_digest_and_not_through_links(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (inside / "a.py").write_text("a = 1\n")
    (outside / "secret.py").write_text("s = 1\n")
    (inside / "link.py").symlink_to(outside / "secret.py")
    finder = SourceFinder([inside, tmp_path / "missing"])
    assert finder.source_of(failing(Status.crashed, solution_digest=digest_text("a = 1\n"))) == "a = 1\n"
    assert finder.source_of(failing(Status.crashed, solution_digest=digest_text("s = 1\n"))) is None
    assert finder.source_of(failing(Status.crashed)) is None


class TestCommand:
    def test_show_feedback(self, capsys: pytest.CaptureFixture[str]) -> None:
        run = str(HERE.parent / "results" / "h200-examples")
        assert main(["show", run, "16_does_not_compile", "--feedback"]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith("level1/16, broken/level1/16_does_not_compile.py: compile error\n")
        assert 'identifier "width" is undefined' in shown
        assert main(["show", run, "--feedback", "--json"]) == 0
        held = json.loads(capsys.readouterr().out)
        assert len(held) == len(records(Path(run) / "records.jsonl"))
        assert {item["feedback"].split("\n")[0].split(": ")[-1] for item in held} >= {"passed", "compile error"}

    def test_a_run_without_records_says_so(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "records.jsonl").write_text("")
        assert main(["show", str(tmp_path), "--feedback"]) == 0
        held = capsys.readouterr()
        assert (held.out, "this run has no records yet" in held.err) == ("", True)

    def test_a_folder_of_sources_that_is_not_there(self, capsys: pytest.CaptureFixture[str]) -> None:
        run = str(HERE.parent / "results" / "h200-examples")
        assert main(["show", run, "--feedback", "--solutions", "nowhere"]) == 2
        assert "--solutions nowhere: no such folder" in capsys.readouterr().err
