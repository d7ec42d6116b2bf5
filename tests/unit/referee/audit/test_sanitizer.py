"""Reading compute-sanitizer: its tools' output as reports, and lines of compiled files as the solution's own."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pytest

from harness.core.task import SourcePart
from harness.protocol.kernel_names import function_name
from harness.protocol.messages import Attach, Burst, Load, Open
from harness.referee.audit.audit import Audit, AuditSubject, ContestantSet, ToolRun
from harness.referee.audit.auditor import find_sanitizer
from harness.referee.audit.sanitizer import (
    MAX_REPORTS,
    SanitizerTool,
    _place,
    command,
    not_needed,
    overflowed,
    parse,
)
from harness.referee.contestants.findings import failure_of_reports

RACE = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at racy(const float *, float *)+0xe0 in cuda.cu:7
=========     and Read access at racy(const float *, float *)+0xf0 in cuda.cu:8 [1024 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
BEYOND = """========= Invalid __global__ read of size 4 bytes
=========     at void space::beyond<float, (int)4>(const float *, float *)+0xc0 in /tmp/work/cuda.cu:9
=========     by thread (104,1,0) in block (7,0,2)
=========     Access at 0x7f2b3ba00fa0 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f2b3ba00000 of size 4,000 bytes
=========
"""
MISALIGNED = """========= Invalid __shared__ write of size 16 bytes
=========     at vectors(float4 *)+0x80 in cuda.cu:12
=========     by thread (1,0,0) in block (0,0,0)
=========     Address 0x4 is misaligned
=========
"""
UNSET = """========= Uninitialized __global__ memory read of size 4 bytes
=========     at unset(const float *, float *)+0x70 in cuda.cu:10
=========     by thread ({thread},0,0) in block (0,0,0)
=========     Address 0x7f58d4800800
=========
"""
DIVERGENT = """========= Barrier error detected. Divergent thread(s) in warp.
=========     at divergent(float *)+0x60
=========     by thread (96,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"


TOO_MANY = """========= COMPUTE-SANITIZER
========= Warning: Maximum number of hazards reached. Environment variable NV_COMPUTE_SANITIZER_MAX_RACECHECK_HAZARDS can be used to increase this count.
=========
"""  # noqa: E501


@pytest.mark.parametrize(
    ("said", "whole"), [(TOO_MANY, False), (RACE, True), (TOO_MANY.replace("=========", ""), True)]
)
def test_a_tool_that_kept_no_more_says_so_itself(said: str, whole: bool) -> None:
    assert overflowed(said) is not whole
    assert parse(TOO_MANY, SanitizerTool.RACECHECK) == ()


def test_a_race_names_both_accesses_and_leads_with_the_read() -> None:
    (finding,) = parse(RACE, SanitizerTool.RACECHECK)
    assert finding.to_report() == {
        "kind": "data_race",
        "tool": "compute-sanitizer racecheck",
        "message": "a read of shared memory races with a write by another thread",
        "kernel": "racy",
        "file": "cuda.cu",
        "line": 8,
        "other_line": 7,
        "other_file": "cuda.cu",
        "count": 1024,
    }
    failure = failure_of_reports([finding.to_report()])
    assert failure is not None
    assert failure.status == "data_race"
    assert "racy, line 8" in failure.reason
    assert "the other access is on line 7" in failure.reason


@pytest.mark.parametrize(
    ("text", "tool", "kind", "kernel", "line", "words"),
    [
        (BEYOND, SanitizerTool.MEMCHECK, "memory_error", "beyond", 9, "1 bytes after the nearest allocation"),
        (MISALIGNED, SanitizerTool.MEMCHECK, "misaligned", "vectors", 12, "misaligned"),
        (
            UNSET.format(thread=0),
            SanitizerTool.INITCHECK,
            "uninitialised_read",
            "unset",
            10,
            "Uninitialized __global__",
        ),
        (DIVERGENT, SanitizerTool.SYNCCHECK, "barrier_error", "divergent", None, "Divergent thread"),
    ],
)
def test_each_kind_is_read(
    text: str, tool: SanitizerTool, kind: str, kernel: str, line: int | None, words: str
) -> None:
    (finding,) = parse(text, tool)
    assert (finding.kind, finding.place.kernel, finding.place.line) == (kind, kernel, line)
    assert words in finding.message


def test_thread_and_block_are_told() -> None:
    (finding,) = parse(BEYOND, SanitizerTool.MEMCHECK)
    assert (finding.thread, finding.block) == ((104, 1, 0), (7, 0, 2))


def test_what_many_threads_did_is_one_finding() -> None:
    (finding,) = parse("".join(UNSET.format(thread=n) for n in range(300)), SanitizerTool.INITCHECK)
    assert finding.count == 300


def test_nothing_is_found_in_clean_output_noise_or_warnings() -> None:
    warning = RACE.replace("Error: Race", "Warning: Race")
    for text in (
        CLEAN,
        "",
        "no mark at all\n" * 10,
        warning,
        "=========\n=========\n",
        "========= Invalid __global__ read",
    ):
        assert parse(text, SanitizerTool.RACECHECK) == ()


def test_a_flood_is_bounded() -> None:
    flood = "".join(UNSET.replace("cuda.cu:10", f"cuda.cu:{n}").format(thread=0) for n in range(500))
    assert len(parse(flood, SanitizerTool.INITCHECK)) == MAX_REPORTS


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("kernel(float *, int)", "kernel"),
        ("void kernel<float, 4>(float *)", "kernel"),
        ("void a::b::kernel<c::d<int>, (int)3>(float (*)(int))", "kernel"),
        ("(anonymous namespace)::kernel(int)", "kernel"),
        ("kernel", "kernel"),
    ],
)
def test_kernels_are_named_shortly(signature: str, name: str) -> None:
    assert function_name(signature) == name


def test_commands_follow_forks_and_write_to_a_file() -> None:
    words = command("/opt/compute-sanitizer", SanitizerTool.RACECHECK, "/logs/race.log")
    assert words[:3] == ("/opt/compute-sanitizer", "--tool", "racecheck")
    assert words[words.index("--target-processes") + 1] == "all"
    assert words[words.index("--log-file") + 1] == "/logs/race.log"


SOURCE = 'import x\n\nsource = r"""\n__global__ void racy() {\n  a();\n  b();\n}\n"""\n'
TEXT = "\n__global__ void racy() {\n  a();\n  b();\n}\n"


def _audit(text: str, tool: SanitizerTool, *, kernels: frozenset[str] = frozenset()) -> Audit:
    attach = Attach(nbytes=1, opening=Open(device="cuda", device_index=0, checked=True, host_runtime=None))
    load = Load(source=SOURCE, filename="s.py", modules=(), init_tree={}, init_slots=(), state={}, seed=0)
    burst = Burst(calls=(), input_tree={}, state_names=(), restore_state=False, coerce_device=False)
    subject = AuditSubject(
        attach=attach,
        arena_fd=-1,
        load=load,
        burst=burst,
        elsewhere=burst,
        readable=(),
        gpu_minor=None,
        builds_later=False,
        source=SOURCE,
        filename="s.py",
        parts=(SourcePart(file="cuda.cu", name="cuda source 1", text=TEXT, begin=5),),
        kernels=kernels,
        log_path=Path("log"),
    )
    told: Future[ToolRun] = Future()
    told.set_result(ToolRun(findings=parse(text, tool), wall_s=1.0))
    return Audit(subject, {tool: told}, ContestantSet())


def test_lines_of_compiled_files_become_lines_of_the_solution() -> None:
    # Line 5 of cuda.cu is the text's first line, which is line 3 of the solution.
    result = _audit(RACE, SanitizerTool.RACECHECK).result()
    (report,) = result.reports
    assert (report["file"], report["line"], report["other_line"]) == ("s.py", 6, 5)
    assert SOURCE.split("\n")[report["line"] - 1].strip() == "b();"
    assert result.tools == {"racecheck": {"wall_s": 1.0, "findings": 1}}


def test_findings_in_other_peoples_kernels_are_counted_and_no_more() -> None:
    foreign = UNSET.format(thread=0).replace("cuda.cu", "Reduce.cu")
    result = _audit(foreign, SanitizerTool.INITCHECK).result()
    assert result.reports == []
    assert result.tools["initcheck"]["foreign_findings"] == 1
    # Without a line table the kernel's name tells.
    named = _audit(DIVERGENT, SanitizerTool.SYNCCHECK, kernels=frozenset({"divergent"})).result()
    assert [report["kind"] for report in named.reports] == ["barrier_error"]


def test_the_tool_is_found_beside_nvcc(tmp_path: Path) -> None:
    folder = tmp_path
    (folder / "nvcc").touch()
    (folder / "compute-sanitizer").touch()
    assert find_sanitizer(folder / "nvcc") == str(folder / "compute-sanitizer")


@pytest.mark.parametrize(
    ("text", "skipped"),
    [
        ("__global__ void f(float* x) { x[threadIdx.x] = 0; }", {SanitizerTool.RACECHECK, SanitizerTool.SYNCCHECK}),
        ("__global__ void f() { __shared__ float t[32]; t[0] = 0; }", {SanitizerTool.SYNCCHECK}),
        ("__global__ void f() { __sha\\\nred__ float t[32]; }", {SanitizerTool.SYNCCHECK}),
        ("__global__ void f() { __sha\\ \t\nred__ float t[32]; }", {SanitizerTool.SYNCCHECK}),
        ("%:define P(a, b) a%:%:b\n__global__ void f() { P(__sha, red__) float t[32]; }", set()),
        ("__global__ void f() { __syncwarp(); }", {SanitizerTool.RACECHECK}),
        ('__global__ void f() { asm("bar.sync 0;"); }', set()),
        ("#define P(a, b) a##b\n__global__ void f() { P(__sha, red__) float t[32]; }", set()),
    ],
)
def test_a_tool_that_can_find_nothing_is_left_out(text: str, skipped: set[SanitizerTool]) -> None:
    assert {tool for tool in SanitizerTool if not_needed(tool, [text]) is not None} == skipped


def test_where_the_sources_are_not_known_every_tool_runs() -> None:
    assert not any(not_needed(tool, []) for tool in SanitizerTool)


@pytest.mark.parametrize("words", ["at a+0x1 in ", "and Read access at a+0x1 in b:1 ", "at ", "+0x1", " in a:1"])
def test_words_that_repeat_in_a_name_are_read_in_time_that_grows_with_them_alone(words: str) -> None:
    """Names of kernels and of files (`#line`) are the solution's own. 400 repeats once took seconds."""
    text = f"========= Error: Race reported between Write access at k+0x1\n========= {words * 100_000}\n=========\n"
    assert len(parse(text, SanitizerTool.RACECHECK)) <= 1
    flood = f"========= Invalid __global__ read of size 4 bytes\n========= at {words * 100_000}\n=========\n"
    assert len(parse(flood, SanitizerTool.MEMCHECK)) <= 1


def test_a_place_without_a_kernel_is_none() -> None:
    held = _place("========= at k+0x10 in a.cu:7")
    assert held is not None
    assert (held.kernel, held.file, held.line) == ("k", "a.cu", 7)
    assert _place("========= at +0x10 in a.cu:7") is None
