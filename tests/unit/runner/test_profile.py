"""`harness profile`: what ncu's table says, the page, and what is said where nothing can be profiled."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cli import main
from harness.core.environment import collect, cuda_unusable
from harness.report.profile import lines_of
from harness.runner.profile import ncu
from harness.runner.profile.running import Profile, ProfiledSide

SOLUTION = "solutions/examples/optimised/level1/4_wide_loads_shuffle.py"

HEADER = ["ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", *ncu.METRICS]


def table(*rows: dict[str, str], units: dict[str, str] | None = None) -> str:
    """ncu's output for these launches, its own remarks around it."""

    def line(held: dict[str, str]) -> str:
        return ",".join('"{}"'.format(held.get(name, "").replace('"', '""')) for name in HEADER)

    body = [",".join(f'"{name}"' for name in HEADER), line(units or {ncu.TIME: "ns", ncu.READ: "byte"})]
    body += [line({"ID": str(number), **row}) for number, row in enumerate(rows)]
    return "==PROF== Connected to process 12\n==PROF== Disconnected\n" + "\n".join(body) + "\n"


ROW = {
    "Kernel Name": 'matvec(float const*, "quoted", int)',
    ncu.TIME: "2,000,000",
    ncu.READ: "8,000,000,000",
    ncu.WRITTEN: "1000000",
    ncu.OCCUPANCY: "87.5",
    ncu.TENSOR: "0",
    ncu.BUSY: "31.25",
    ncu.MEMORY: "90.1",
    ncu.L2_HITS: "n/a",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": "21.5",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": "3.25",
    "smsp__average_warps_issue_stalled_sleeping_per_issue_active.ratio": "0",
}


def test_the_table_of_counters() -> None:
    (launch,) = ncu.parse(table(ROW))
    assert launch.name == 'matvec(float const*, "quoted", int)'
    assert launch.time_s == pytest.approx(2e-3)
    assert launch.bytes_per_s == pytest.approx(8.001e9 / 2e-3)
    assert (launch.memory_share, launch.occupancy, launch.tensor_share) == (pytest.approx(0.901), 0.875, 0.0)
    assert launch.l2_hit_share is None
    assert launch.stalls == (("long_scoreboard", 21.5), ("barrier", 3.25))
    json.dumps(launch.to_json(), allow_nan=False)


def test_the_heaviest_launches_first() -> None:
    launches = ncu.parse(table(ROW, {**ROW, ncu.TIME: "5000000", "Kernel Name": "slow"}, {**ROW, ncu.TIME: ""}))
    assert [launch.name for launch in ncu.heaviest(launches, 2)] == ["slow", ROW["Kernel Name"]]


@pytest.mark.parametrize(("unit", "seconds"), [("ns", 2e-3), ("nsecond", 2e-3), ("us", 2.0), ("usecond", 2.0)])
def test_times_in_the_units_that_versions_use(unit: str, seconds: float) -> None:
    assert ncu.parse(table(ROW, units={ncu.TIME: unit}))[0].time_s == pytest.approx(seconds)


def test_no_table_is_no_launch_and_the_tools_words_say_why() -> None:
    denied = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    assert ncu.parse(denied) == ()
    assert "NVreg_RestrictProfilingToAdminUsers=0" in str(ncu.complaint(denied))
    assert ncu.complaint("==ERROR== Failed to find metric nonsense") == "Failed to find metric nonsense"
    assert ncu.complaint("all is well") is None


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=400), st.dictionaries(st.sampled_from(HEADER), st.text(max_size=12), max_size=8))
def test_no_text_breaks_the_reader(junk: str, row: dict[str, str]) -> None:
    ncu.parse(junk)
    for launch in ncu.parse(table(row) + junk):
        json.dumps(launch.to_json(), allow_nan=False)


def test_the_command_measures_marked_calls_of_forks_only() -> None:
    words = ncu.command("/opt/ncu", Path("/tmp/out"))
    assert words[0] == "/opt/ncu"
    for option, value in (("--profile-from-start", "off"), ("--target-processes", "all"), ("--log-file", "/tmp/out")):
        assert words[words.index(option) + 1] == value


KERNEL = {
    "name": "matvec(float const*)", "kind": "kernel", "calls": 1, "total_s": 2e-3, "share": 0.98, "owner": "own",
    "grid": [2048, 1, 1], "block": [256, 1, 1], "registers": 40, "static_shared_bytes": 32, "dynamic_shared_bytes": 0,
    "local_bytes": 0, "spill_stores_bytes": 4, "spill_loads_bytes": 8,
    "occupancy": {"share": 0.75, "blocks": 6, "limiter": "registers", "waves": 2.6},
}  # fmt: skip
COPY = {"name": "memcpy device to device", "kind": "copy", "calls": 2, "total_s": 4e-5, "share": 0.02}


def side(title: str, **changes: Any) -> ProfiledSide:
    census = {"kernels": [KERNEL, COPY], "device_s": 2.04e-3, "launches": 1, "own_share": 0.98, "library_share": 0.0}
    return ProfiledSide(**{"title": title, "census": census, **changes})


def profiled(**changes: Any) -> Profile:
    held: dict[str, Any] = {
        "problem": "level1/4", "workload": "full", "device": "NVIDIA H200", "solution": side("solution"),
        "reference": side("reference", census={"kernels": [], "not_taken": "libcupti is not here"}),
        "speed_of_light": {"sol_time_s": 1.79e-3, "bound": "memory"}, "flops": 10**9, "least_bytes": 8 * 2**30,
    }  # fmt: skip
    return Profile(**{**held, **changes})


def test_the_page() -> None:
    text = "\n".join(lines_of(profiled()))
    assert "level1/4, workload full, on NVIDIA H200" in text
    assert "speed of light: 1.79 ms, bound by memory" in text
    assert "share of the speed of light  88 %" in text
    row = next(line for line in text.splitlines() if "matvec" in line)
    for shown in ("98 %", "2.00 ms", "own", "2048", "256", "40", "32 B", "12 B", "75 % (registers)"):
        assert shown in row
    assert "reference: kernels are unknown: libcupti is not here" in text


def test_the_page_with_counters_and_without() -> None:
    (launch,) = ncu.parse(table(ROW))
    both = profiled(
        solution=side("solution", counters=(launch,), labels=("falls_back",)),
        reference=side("reference", counters_lack="this user may not read counters"),
    )
    text = "\n".join(lines_of(both))
    rows = [line.split("  ") for line in text.splitlines()]
    assert ["4.00 TB/s"] in [[cell.strip() for cell in row if cell.strip()][1:] for row in rows]
    assert "long_scoreboard, 21.5 warps" in text
    assert "long_scoreboard: waiting for data from global or local memory" in text
    assert "reference: no hardware counters: this user may not read counters" in text
    assert "labels: falls_back" in text
    json.dumps(both.to_json(), allow_nan=False)


def test_what_was_counted_of_both_stands_side_by_side() -> None:
    (own,) = ncu.parse(table(ROW))
    others = ncu.parse(table({**ROW, "Kernel Name": "gemv", ncu.OCCUPANCY: "50"}, {**ROW, ncu.TIME: "5"}))
    both = profiled(solution=counted(own), reference=side("reference", counters=others))
    held = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines_of(both)]
    assert ["ncu, slowest kernel", "solution", "reference"] in held
    assert ["kernel", "matvec", "gemv"] in held
    assert ["achieved occupancy", "88 %", "50 %"] in held
    assert ["first stall reason", "long_scoreboard, 21.5 warps", "long_scoreboard, 21.5 warps"] in held
    assert ["ncu, kernel 2", "solution", "reference"] in held
    assert sum(cells[:1] == ["long_scoreboard: waiting for data from global or local memory"] for cells in held) == 1


def test_two_calls_that_are_alike_are_not_called_faster() -> None:
    alike = {"kernels": [], "device_s": 2.06e-3, "launches": 1}
    (line,) = in_words_of(reference=side("reference", census=alike))
    assert "takes 2.04 ms, about as long as the reference (2.06 ms)." in line


def in_words_of(**changes: Any) -> list[str]:
    lines = lines_of(profiled(**changes))
    return lines[lines.index("in words:") + 1 :] if "in words:" in lines else []


def test_the_two_calls_are_compared_in_words() -> None:
    slower = {"kernels": [], "device_s": 4.08e-3, "launches": 3}

    (line,) = in_words_of(reference=side("reference", census=slower))

    assert "takes 2.04 ms, 50 % less than the reference, in 1 launch instead of 3" in line
    assert in_words_of() == []  # the reference's kernels are not known


def test_what_keeps_the_heaviest_kernel_is_told_in_words() -> None:
    (launch,) = ncu.parse(table(ROW))
    idle = replace(launch, memory_share=0.2, compute_share=0.1)
    products = replace(launch, memory_share=0.2, compute_share=0.9, tensor_share=0.0)

    assert any("keeps memory busy (90 % of the peak)" in line for line in in_words_of(solution=counted(launch)))
    assert any("waiting for data from global" in line for line in in_words_of(solution=counted(idle)))
    assert any(
        "busy (90 % of the peak), without tensor cores" in line for line in in_words_of(solution=counted(products))
    )


def counted(*launches: ncu.Counters) -> ProfiledSide:
    return side("solution", counters=launches)


def test_bytes_beyond_the_least_are_told_where_all_launches_were_counted() -> None:
    (launch,) = ncu.parse(table(ROW))
    moved = (launch.read_bytes or 0) + (launch.written_bytes or 0)

    lines = in_words_of(solution=counted(launch), least_bytes=int(moved / 3))

    assert any("moves 3.0 times the least bytes" in line for line in lines)
    census = {"kernels": [KERNEL], "device_s": 2e-3, "launches": 2}
    partly = side("solution", counters=(launch,), census=census)
    assert not any("least bytes" in line for line in in_words_of(solution=partly, least_bytes=int(moved / 3)))


def test_names_of_kernels_act_on_no_terminal() -> None:
    bad = {**KERNEL, "name": "\x1b[31m\u202e" * 30}
    text = "\n".join(lines_of(profiled(solution=side("solution", census={"kernels": [bad], "device_s": 1.0}))))
    assert not set(text) & set("\x1b\u202e")


@pytest.mark.skipif(cuda_unusable(collect()) is None, reason="a GPU is here: tests/gpu/test_profile.py profiles on it")
def test_without_a_gpu_it_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", SOLUTION]) == 3
    assert main(["profile", "missing.py"]) == 2
    said = capsys.readouterr().err
    assert "profiling needs a GPU" in said
    assert "--device host" in said


def test_counters_need_the_tool_and_the_message_says_which(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("harness.core.environment.cuda_unusable", lambda found: None)  # as on a machine with a GPU
    monkeypatch.setattr("harness.runner.profile.ncu.find_ncu", lambda nvcc: None)
    assert main(["profile", SOLUTION, "--ncu"]) == 3
    said = capsys.readouterr().err
    assert "Nsight Compute" in said
    assert "leave out --ncu" in said


def test_the_tool_beside_nvcc_comes_before_the_one_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("toolkit", "path"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ncu").write_text("#!/bin/sh\n")
        (tmp_path / folder / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert ncu.find_ncu(tmp_path / "toolkit" / "nvcc") == str(tmp_path / "toolkit" / "ncu")
    assert ncu.find_ncu(tmp_path / "elsewhere" / "nvcc") == str(tmp_path / "path" / "ncu")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ncu, "_USUAL", str(tmp_path / "nowhere"))
    assert ncu.find_ncu(None) is None
