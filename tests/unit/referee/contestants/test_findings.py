"""Lines of compiled files become lines of the solution's file, and nothing a report holds can break that."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.task import SourcePart
from harness.referee.contestants.findings import MAX_PLACED, all_placed, placed
from harness.toolchain.spec import ExtensionSpec
from harness.toolchain.units import texts_of, units_of

FIRST = "\n__global__ void first(float* x) {\n    x[1] = 0;\n}\n"
SECOND = "\n__global__ void second(float* x) {\n    x[2] = 0;\n}\n"
SOURCE = f'import torch\n\nA = """{FIRST}"""\nB = """{SECOND}"""\n'
LINE_OF_FIRST = SOURCE[: SOURCE.index("x[1]")].count("\n") + 1
LINE_OF_SECOND = SOURCE[: SOURCE.index("x[2]")].count("\n") + 1


def spec(*texts: str) -> ExtensionSpec:
    return ExtensionSpec(name="m", cuda_sources=texts, functions=(("f", "f"),))


def parts(*specs: ExtensionSpec, on_host: bool = True) -> tuple[SourcePart, ...]:
    maps = [m for s in specs for m in (texts_of(s) if on_host else [unit.map for unit in units_of(s)])]
    return tuple(SourcePart(file=m.file, name=name, text=text, begin=n) for m in maps for name, text, n in m.parts)


def at(report: dict[str, Any], held: tuple[SourcePart, ...], source: str = SOURCE) -> dict[str, Any]:
    return placed(report, held, source=source, filename="1_x.py")


def test_a_line_of_the_cuda_text_becomes_one_of_the_file() -> None:
    report = {
        "kind": "data_race",
        "kernel": "second",
        "line": 8,
        "file": "cuda.cu",
        "other_line": 3,
        "other_file": "cuda.cu",
    }
    found = at(report, parts(spec(FIRST, SECOND)))
    assert (found["line"], found["file"]) == (LINE_OF_SECOND, "1_x.py")
    assert (found["other_line"], found["other_file"]) == (LINE_OF_FIRST, "1_x.py")


def test_what_torch_writes_before_the_texts_counts_on_a_gpu_and_not_on_the_host_device() -> None:
    on_gpu = at({"kernel": "first", "line": 6, "file": "cuda.cu"}, parts(spec(FIRST), on_host=False))
    on_host = at({"kernel": "first", "line": 3, "file": "cuda.cu"}, parts(spec(FIRST)))
    assert on_gpu == on_host == {"kernel": "first", "line": LINE_OF_FIRST, "file": "1_x.py"}


def test_of_two_extensions_the_one_that_has_the_kernel_is_meant() -> None:
    held = parts(spec(FIRST), spec(SECOND))
    assert at({"kernel": "first", "line": 3}, held)["line"] == LINE_OF_FIRST
    assert at({"kernel": "second<float>", "line": 3}, held)["line"] == LINE_OF_SECOND


def test_a_text_that_does_not_stand_in_the_file_is_named_instead() -> None:
    held = parts(spec(FIRST.replace("x[1] = 0", "x[17] = 0")))
    assert at({"kernel": "first", "line": 3}, held) == {"kernel": "first", "line": 3, "file": "cuda source 1"}


@pytest.mark.parametrize(
    "report",
    [
        {"line": 3, "file": "/usr/include/x.h"},
        {"line": 3, "file": "1_x.py"},
        {"line": 300},
        {"line": 0},
        {"line": None, "other_line": True},
        {"line": "3"},
        {},
    ],
)
def test_what_is_not_known_stays_as_it_is(report: dict[str, Any]) -> None:
    assert at(report, parts(spec(FIRST))) == report


def test_a_flood_of_reports_is_placed_up_to_a_bound() -> None:
    reports = [{"kernel": "first", "line": 3}] * (MAX_PLACED + 5)
    found = all_placed(reports, parts(spec(FIRST)), source=SOURCE, filename="1_x.py")
    assert [report.get("file") for report in found] == ["1_x.py"] * MAX_PLACED + [None] * 5


VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.lists(st.integers(), max_size=2)


@given(st.dictionaries(st.sampled_from(("kernel", "line", "file", "other_line", "other_file")), VALUES))
def test_no_report_breaks_it(report: dict[str, Any]) -> None:
    assert at(report, parts(spec(FIRST, SECOND))).keys() >= report.keys()


@pytest.mark.parametrize("stands", [True, False])
def test_reports_over_long_sources_are_placed_in_time_that_grows_with_them_alone(stands: bool) -> None:
    """Each text was split anew for each line that a report named: 256 times, of millions of lines."""
    text = "\n" * 1_000_000 + "__global__ void k(float* x) {\n}\n" + "x\n" * 100_000
    source = f'A = """{text}"""\n' if stands else f'A = """{text.replace("void k", "void  k")}"""\n'
    part = SourcePart(file="cuda.cu", name="cuda source 1", text=text, begin=1)
    reports = [
        {"kind": "data_race", "kernel": f"k{n}", "line": n + 1, "other_line": 1_000_001, "file": "cuda.cu"}
        for n in range(MAX_PLACED)
    ]
    found = all_placed(reports, (part,), source=source, filename="1_x.py")
    assert [held["line"] for held in found] == [n + 1 for n in range(MAX_PLACED)]
    assert all(held["file"] == ("1_x.py" if stands else "cuda source 1") for held in found)


def test_a_line_that_stands_twice_has_no_place_in_the_file() -> None:
    text = "int a;\nint b;\n"
    part = SourcePart(file="cuda.cu", name="cuda source 1", text=text, begin=1)
    twice = "int a;\n  int b;\nint a;\n"
    first, second = all_placed(
        [{"line": 1, "file": "cuda.cu"}, {"line": 2, "file": "cuda.cu"}], (part,), source=twice, filename="1_x.py"
    )
    assert (first["line"], first["file"]) == (1, "cuda source 1")
    assert (second["line"], second["file"]) == (2, "1_x.py")
