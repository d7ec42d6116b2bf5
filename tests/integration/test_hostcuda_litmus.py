"""Litmus tests on the host device: the sound form of each pair is right and silent, the broken form gets its finding.

The pairs are in `hostcuda/litmus/*.cu`; `hostcuda/compare.py --litmus` takes the same entries to a GPU.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.hostcuda import compare, corpus_entries, host_runner

LITMUS = {entry.name: entry for entry in corpus_entries.litmus()}
SOUND = [name for name, entry in LITMUS.items() if entry.defect is None]
BROKEN = [name for name, entry in LITMUS.items() if entry.defect is not None]
result_of = host_runner.lazy_results(list(LITMUS.values()))

pytestmark = pytest.mark.xdist_group("test_hostcuda_litmus")
"""One worker runs all of it: every test of a batch asks for the same run of it."""

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="the host device needs g++")


@needs_compiler
@pytest.mark.parametrize("name", SOUND)
def test_a_sound_form_is_right_and_silent(name: str) -> None:
    result = result_of(name)
    assert result.findings == ()
    assert result.outcome == "passed", (result.errors, result.detail)


@needs_compiler
@pytest.mark.parametrize("name", corpus_entries.with_known_gaps(LITMUS, BROKEN))
def test_a_broken_form_is_reported_where_it_is_broken(name: str) -> None:
    defect = LITMUS[name].defect
    assert defect is not None
    result = result_of(name)
    assert defect.is_among(result.findings), (result.outcome, result.detail, result.findings)


def test_there_are_as_many_pairs_as_promised() -> None:
    assert len(SOUND) == len(BROKEN) >= 120
    assert {f"{name}_broken" for name in SOUND} == set(BROKEN)


def test_both_forms_of_a_pair_differ() -> None:
    assert [name for name in SOUND if LITMUS[name].source == LITMUS[f"{name}_broken"].source] == []


def test_macros_replace_the_header_and_no_line_moves(tmp_path: Path) -> None:
    file = tmp_path / "family.cu"
    file.write_text(
        "/*\nsummary: s\ninputs: {}\noutputs: {}\nsizes: []\nkernel: k\nmacros: A=1 B=f(x,2)\npairs:\n"
        '  p: {sound: "B=", broken: "A=a==3", status: barrier_error}\n*/\n__global__ void k() { A; }  // defect\n'
    )
    sound, broken = corpus_entries._forms(corpus_entries.load(file))
    assert (sound.name, broken.name) == ("family_p", "family_p_broken")
    assert sound.source.split("\n")[:2] == ["#define A 1", "#define B"]
    assert broken.source.split("\n")[:2] == ["#define A a==3", "#define B"]
    assert sound.source.split("\n")[10] == file.read_text().split("\n")[10]
    assert sound.defect is None
    assert broken.defect == corpus_entries.Defect(status="barrier_error", kernel="k", tool="synccheck", lines=(11,))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("name", ["buffering_store_buffering_ptx", "clusters_only_the_block_meets_broken"])
def test_a_form_is_compiled_for_a_gpu_as_it_stands(name: str, tmp_path: Path) -> None:
    program, log = compare.build_cuda(LITMUS[name], tmp_path, "sm_90")
    assert program.exists(), log
    assert (tmp_path / f"{name}.cu").read_text() == LITMUS[name].source
