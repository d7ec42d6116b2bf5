"""Pages for the terminal: what stands on them, and that a submission can't draw on them."""

from __future__ import annotations

import io
import re
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.core.status import Status
from harness.report import terminal
from harness.report.details import details
from harness.runner.doctor import CheckState, Diagnosis, MachineCheck


def text_of(*parts: RenderableType, width: int = 200, color: bool = False) -> str:
    stream = io.StringIO()
    system: Any = "truecolor" if color else None
    console = Console(
        file=stream, width=width, markup=False, highlight=False, emoji=False, force_terminal=color, color_system=system
    )
    for part in parts:
        console.print(part)
    return stream.getvalue()


PASSED = Record(
    problem="level1/16",
    author="m",
    solution="m/level1/16_tiled.py",
    device=DeviceKind.CUDA,
    workload="full",
    status=Status.passed,
    reason="right on every input variant",
    speedup=1.312,
    labels=("static_buffer",),
    timing={
        "reference": {"median_s": 2.687e-3, "q1_s": 2.68e-3, "samples": 32},
        "solution": {"median_s": 2.046e-3, "q1_s": 2.04e-3, "samples": 32},
        "speedup": {"speedup": 1.312, "low": 1.294, "high": 1.331},
        "stopped_by": "interval narrow enough",
    },
    evidence={"variants": {"own": {"calls": 3, "rms_error": 4.3e-5}, "zero_mean": {"calls": 1, "rms_error": 1e-5}}},
    build={"wall_s": 53.4, "kernels": [{"name": "tiled", "registers": 40, "spill_bytes": 0, "shared_bytes": 8192}]},
    environment={"gpu": "NVIDIA H200"},
)
FAILED = replace(
    PASSED, status=Status.compile_error, reason='x.cu:12: expected ";"', speedup=None, timing=None, labels=()
)
ON_HOST = replace(PASSED, device=DeviceKind.HOST, workload="small", speedup=None, timing=None, labels=())


def test_a_line_says_who_what_and_how_fast() -> None:
    words = " ".join(text_of(terminal.record_line(PASSED, number=3, total=40)).split())
    assert words == "[ 3/40] ✓ passed level1/16 m/level1/16_tiled.py 1.31x (1.29 to 1.33) [static_buffer]"


def test_a_speedup_inside_the_noise_is_the_same() -> None:
    near = {"speedup": {"speedup": 1.004, "low": 1.002, "high": 1.006}, "noise_floor": {"log_width": 0.005}}
    shown = text_of(terminal.record_line(replace(PASSED, speedup=1.004, timing=near), number=3, total=40))
    assert "same as the reference (within 0.60 %)" in " ".join(shown.split())
    quiet = near | {"noise_floor": {"log_width": 0.001}}
    shown = text_of(terminal.record_line(replace(PASSED, speedup=1.004, timing=quiet), number=3, total=40))
    assert "1.00x (1.00 to 1.01)" in " ".join(shown.split())


def test_a_speedup_is_told_with_the_interval_and_the_name_of_its_own_baseline() -> None:
    eager = {"speedup": 1.5, "low": 1.49, "high": 1.51}
    timing = {"baseline": "compile", "speedup": {"low": 1.19, "high": 1.21}, "baselines": {"eager": eager}}
    own = replace(PASSED, speedup=1.2, timing=timing, labels=())
    assert terminal.result_of(own) == "1.20x (1.19 to 1.21) over compile"
    near = timing | {"speedup": {"low": 1.0, "high": 1.002}, "noise_floor": {"log_width": 0.005}}
    assert terminal.result_of(replace(own, speedup=1.001, timing=near)) == "same as compile (within 0.50 %)"
    lacking = timing | {"speedup": None}
    shown = terminal.result_of(replace(own, speedup=None, timing=lacking))
    assert shown == "1.50x (1.49 to 1.51) over eager; compile has no time"


def test_a_line_of_a_failure_gives_the_reason_and_no_speedup() -> None:
    shown = text_of(terminal.record_line(FAILED, number=1, total=1))
    assert 'x.cu:12: expected ";"' in shown
    assert "1.31x" not in shown


def test_a_brief_line_leaves_the_result_to_the_page_that_follows() -> None:
    failed = text_of(terminal.record_line(FAILED, number=1, total=1, brief=True))
    assert failed.split() == ["[1/1]", "✗", "compile_error", "level1/16", "m/level1/16_tiled.py"]
    assert text_of(terminal.record_line(PASSED, number=1, total=1, brief=True)).rstrip().endswith("[static_buffer]")


def test_a_line_that_is_too_long_breaks_before_its_result_and_at_words() -> None:
    reason = "data race on shared `part[1]` in kernel `fused`: written on line 18, read on line 20 without a barrier"
    line = terminal.record_line(replace(FAILED, reason=reason), number=1, total=1)
    shown = text_of(line, width=80, color=True)
    lines = [re.sub(r"\x1b\[[\d;]*m", "", text).rstrip() for text in shown.splitlines()]
    assert lines[0].endswith("m/level1/16_tiled.py")
    assert " ".join(text.strip() for text in lines[1:]) == reason
    assert all(text.startswith("    ") for text in lines[1:])


def test_host_rows_are_marked_and_carry_no_gpu_time() -> None:
    shown = text_of(terminal.record_line(ON_HOST, number=1, total=1))
    assert "host" in shown
    assert "not timed" in shown
    on_cpu = replace(PASSED, device=DeviceKind.HOST)
    assert "on the CPU" in text_of(terminal.record_line(on_cpu, number=1, total=1))
    assert "no GPU time" in text_of(terminal.summary([ON_HOST], skipped=0, wall_s=1.0))
    assert "no GPU time" not in text_of(terminal.summary([PASSED], skipped=0, wall_s=1.0))


def test_the_summary_counts_each_status_and_says_what_it_means() -> None:
    shown = text_of(terminal.summary([PASSED, PASSED, FAILED], skipped=4, wall_s=83.0))
    assert "3 solutions, 2 passed, in 83.0 s; skipped 4 that had a record." in shown
    assert "compile_error" in shown
    assert "The compiler or linker rejected the sources." in shown
    assert "timeout" not in shown
    assert "0 solutions" in text_of(terminal.summary([], skipped=2, wall_s=0.1))


def test_a_record_page_holds_everything_with_units() -> None:
    shown = text_of(terminal.record_page(PASSED, "nvcc warning: something\nsecond line"))
    for expected in (
        "✓ passed",
        "1.31x (1.29 to 1.33)",
        "2.69 ms",
        "2.05 ms",
        "interval narrow enough",
        "4.300e-05",
        "zero mean",
        "8.00 KiB",
        "53.4 s",
        "NVIDIA H200",
        "nvcc warning: something\nsecond line",
        "static_buffer",
    ):
        assert expected in shown, expected


def test_values_in_a_group_with_a_unit_have_that_unit_and_reasons_their_names() -> None:
    timing = {
        "burst_wall_s": {"reference": [0.0177, 0.0169], "pairs": {"ratio_share": 0.5}},
        "peak_memory_bytes": {"solution": 67110400},
        "gpu_after_rounds": [
            {"sm_clock_hz": 1_980_000_000, "temperature_c": 46, "power_w": 312.5, "throttle_reasons": 0},
            {"sm_clock_hz": 1_755_000_000, "temperature_c": 88, "power_w": 699.0, "throttle_reasons": 0x1064},
        ],
    }
    kernel = {"name": "tiled", "total_s": 9e-4, "occupancy": {"share": 0.125, "limiter": "registers"}}
    evidence = {"stages_s": {"load": 0.3485}, "census": {"kernels": [kernel, kernel]}}
    shown = text_of(terminal.record_page(replace(PASSED, timing=timing, evidence=evidence), None))
    for expected in ("17.7 ms, 16.9 ms", "64.0 MiB", "348 ms", "1.98 GHz", "46 °C", "312 W", "900 µs"):
        assert expected in shown, expected
    assert "power cap (software), temperature (software), temperature (hardware), 0x1000" in shown
    assert [line.split() for line in shown.splitlines() if "limiter" in line] == [["limiter", "registers"]] * 2
    assert "kernels 2" in shown


def test_keys_that_are_no_texts_are_shown_as_such() -> None:
    held = {1: 2, False: {3: "x"}, "rows": [{4: 5}, {4: 6}], "maps": [{7: {8: 9}}]}
    console = Console(width=80)
    with console.capture() as captured:
        console.print(details(held))  # type: ignore[arg-type]
    assert all(str(number) in captured.get() for number in (2, "x", 5, 6, 9))


def test_a_record_page_of_a_failure_says_what_to_do() -> None:
    shown = text_of(terminal.record_page(FAILED, None))
    assert "The compiler or linker rejected the sources." in shown
    assert "empty" in shown


HOSTILE = "\x1b[2J\x1b]0;owned\x07[red]\u202e\r\nfake ✓ passed\x9b1m" + "A" * 5000


@pytest.mark.parametrize("color", [False, True])
def test_nothing_that_a_submission_chose_acts_on_the_terminal(color: bool) -> None:
    nested = {
        HOSTILE: HOSTILE,
        "list": [HOSTILE, {HOSTILE: [HOSTILE]}],
        "rows": [{HOSTILE: HOSTILE}],
        "d": {"d": HOSTILE},
    }
    record = replace(
        FAILED,
        solution=HOSTILE,
        author=HOSTILE,
        problem=HOSTILE,
        workload=HOSTILE,
        reason=HOSTILE.replace("\r\n", " "),
        labels=(HOSTILE,),
        evidence=nested,
        build=nested,
        environment=nested,
    )
    pages = (
        terminal.record_line(record, number=1, total=1),
        terminal.records_table([record]),
        terminal.run_page({"run_id": HOSTILE, "config": nested}, [record], [HOSTILE]),
        terminal.record_page(record, HOSTILE),
        terminal.placed_line(Path("a\x1bb"), None, False, HOSTILE),
        terminal.names([HOSTILE]),
    )
    shown = text_of(*pages, color=color)
    if color:
        # rich's own colours are the only escapes: no cursor movement, no title, no 8-bit control.
        assert "\x1b[2J" not in shown
        assert "\x1b]" not in shown
    else:
        assert "\x1b" not in shown
        assert "[red]" in shown, "markup is text"
    hidden = {char for char in shown if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert hidden <= {"\n", "\t", "\x1b"}
    line = text_of(pages[0], width=10_000)
    assert line.count("\n") == 1
    assert len(line) < 600


def test_a_run_page_lists_every_record() -> None:
    head = {
        "format": 1,
        "run_id": "r1",
        "started_at": "2026",
        "config": {"device": "cuda", "timing": {"budget_s": 10.0}},
    }
    shown = text_of(terminal.run_page(head, [PASSED, FAILED], ["the last line was cut short"]))
    assert "run r1" in shown
    assert "device cuda, workload full" in shown, "what all records have in common stands above them"
    assert "10.0 s" not in shown
    assert "10.0 s" in text_of(terminal.run_page(head, [PASSED, FAILED], [], everything=True))
    assert "cut short" in shown
    assert shown.count("16_tiled.py") == 2


def test_the_doctors_page_says_what_to_do() -> None:
    check = MachineCheck(
        name="nvcc", state=CheckState.missing, found="not found", enables="compiling", remedy="install it"
    )
    unusable = {DeviceKind.CUDA: "no GPU: none", DeviceKind.HOST: None}
    shown = text_of(terminal.doctor_page(Diagnosis(checks=(check,), unusable=unusable)))
    assert "install it" in shown
    assert "--device cuda: can't be used: no GPU: none" in shown
    assert "--device host: can be used" in shown


def test_many_names_are_cut() -> None:
    assert terminal.names(["a", "b"]) == "a, b"
    assert terminal.names([str(n) for n in range(10)], limit=3) == "0, 1, 2 and 7 more"
    assert terminal.names([]) == "none"
