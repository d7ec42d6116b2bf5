"""The corpus on the host device: unbroken kernels give torch's values without a report, broken ones get their finding.

The entries are `hostcuda/corpus/*.cu` and `hostcuda/broken/*.cu`; `hostcuda/compare.py` takes the same files to a GPU.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.hostcuda import compare, corpus_entries, host_runner

CORPUS = {entry.name: entry for entry in corpus_entries.corpus()}
BROKEN = {entry.name: entry for entry in corpus_entries.broken()}
result_of = host_runner.lazy_results([*CORPUS.values(), *BROKEN.values()])

pytestmark = pytest.mark.xdist_group("test_hostcuda_corpus")
"""One worker runs all of it: every test of a batch asks for the same run of it."""

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="the host device needs g++")


@needs_compiler
@pytest.mark.parametrize("name", CORPUS)
def test_unbroken_kernel_is_right_and_silent(name: str) -> None:
    result = result_of(name)
    assert result.findings == ()
    assert result.outcome == "passed", (result.errors, result.detail)


@needs_compiler
@pytest.mark.parametrize("name", corpus_entries.with_known_gaps(BROKEN, BROKEN))
def test_broken_twin_is_reported_where_it_is_broken(name: str) -> None:
    defect = BROKEN[name].defect
    assert defect is not None
    result = result_of(name)
    assert defect.is_among(result.findings), (result.outcome, result.detail, result.findings)


def test_the_corpus_is_as_large_as_promised() -> None:
    assert len(CORPUS) >= 40
    assert len(BROKEN) >= 20
    assert all(entry.defect is None for entry in CORPUS.values())
    assert all(entry.defect is not None and entry.defect.lines for entry in BROKEN.values())
    assert {entry.header["twin"] for entry in BROKEN.values()} <= set(CORPUS)


def test_an_entry_without_a_header_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bare.cu"
    file.write_text("__global__ void k() {}\n")
    with pytest.raises(ValueError, match="begin the file with"):
        corpus_entries.load(file)
    file.write_text("/*\nsummary: nothing\n*/\n")
    with pytest.raises(ValueError, match="lacks inputs, outputs, sizes"):
        corpus_entries.load(file)


def test_inputs_are_the_same_every_time() -> None:
    first, second = (corpus_entries.buffers(CORPUS["matmul_naive"]) for _ in range(2))
    assert all((first.inputs[key] == second.inputs[key]).all() for key in first.inputs)
    assert first.fresh == {"c"}


def test_errors_are_scaled_by_the_spread_of_what_was_expected() -> None:
    entry = CORPUS["matmul_naive"]
    given = corpus_entries.buffers(entry)
    exact = given.inputs["a"].double() @ given.inputs["b"].double()
    assert corpus_entries.errors(entry, given, {"c": exact.float()})["c"] < 1e-6
    off = exact.clone()
    off[0, 0] += 0.5 * exact.pow(2).mean().sqrt()
    assert corpus_entries.errors(entry, given, {"c": off})["c"] == pytest.approx(0.5)
    off[0, 0] = float("nan")
    assert corpus_entries.errors(entry, given, {"c": off})["c"] == float("inf")


def test_lines_of_a_joined_source_lead_back_to_their_entry() -> None:
    batch = host_runner.join([CORPUS["vector_add"], CORPUS["matmul_tiled"]])
    lines = batch.source.split("\n")
    for name in ("vector_add", "matmul_tiled"):
        own = CORPUS[name].source.split("\n")
        number = next(i for i, line in enumerate(own, 1) if "__global__" in line)
        joined = next(i for i, line in enumerate(lines, 1) if line == own[number - 1])
        place = batch.place(joined)
        assert place is not None
        assert (place[0].name, place[1]) == (name, number)


# ---- the GPU side of the runner, on text


RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at matmul_tiled(const float *, float *, int)+0x2e0 in race.cu:24
=========     and Read access at matmul_tiled(const float *, float *, int)+0x4f0 in race.cu:26 [8192 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at vector_add(const float *, const float *, float *, int)+0xc0 in off.cu:21
=========     by thread (104,0,0) in block (7,0,0)
=========     Address 0x7f2b3ba00fa0 is out of bounds
=========
========= ERROR SUMMARY: 1 error
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"


@pytest.mark.parametrize(
    ("text", "file", "want"),
    [
        (RACECHECK, "race.cu", [("data_race", "matmul_tiled", (24, 26))]),
        (MEMCHECK, "off.cu", [("memory_error", "vector_add", (21,))]),
        (CLEAN, "off.cu", []),
    ],
)
def test_compute_sanitizer_output_is_read(text: str, file: str, want: list[tuple[str, str, tuple[int, ...]]]) -> None:
    found = compare.parse_sanitizer(text, file)
    assert [(finding.status, finding.kernel, finding.lines) for finding in found] == want


def test_the_table_says_where_devices_differ() -> None:
    def row(entry: str, outcome: str) -> dict[str, object]:
        return {
            "entry": entry,
            "kind": "corpus",
            "outcome": outcome,
            "findings": [],
            "errors": {"y": 1e-7},
            "tool": None,
        }

    text = compare.table([row("a", "passed"), row("b", "passed")], [row("a", "passed"), row("b", "wrong_value")])
    assert "| a | corpus | passed (error 1.0e-07) | passed (error 1.0e-07) |  | yes |" in text
    assert text.splitlines()[-1].endswith("| no |")
