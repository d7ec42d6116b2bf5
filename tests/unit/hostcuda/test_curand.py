"""cuRAND's generators on the host device give the numbers of NVIDIA's own headers: jumps, words, every distribution.

hostcuda/curand_probe.cu says how `hostcuda/curand_numbers.txt` came about.
"""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.support.paths import TESTS

HERE = TESTS
HOST = HERE.parent / "harness" / "hostcuda"
FREE_OF_LIBM = {"words", "skips", "uniform", "uniform_double", "words4", "uniform4", "subsequences"}
"""Whose digests must agree; logarithms, exponentials and sines of another libm may differ in their last bit."""

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the host device needs g++")


def _lines(text: str) -> dict[str, list[str]]:
    return {name: rest.split() for name, _, rest in (line.partition(": ") for line in text.splitlines())}


EXPECTED = _lines((HERE / "hostcuda" / "curand_numbers.txt").read_text())


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    program = tmp_path_factory.mktemp("curand") / "probe"
    include = HOST / "include"
    command = ["g++", "-std=c++20", "-O1", "-I", str(include), "-include", str(include / "cuda_runtime.h")]
    command += ["-x", "c++", str(HERE / "hostcuda" / "curand_probe.cu"), str(HOST / "runtime" / "random_jumps.cpp")]
    subprocess.run([*command, "-o", str(program)], check=True)
    return _lines(subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("name", EXPECTED)
def test_numbers_are_those_of_nvidias_headers(name: str, drawn: dict[str, list[str]]) -> None:
    count, digest, *first = drawn[name]
    known_count, known_digest, *known_first = EXPECTED[name]
    assert count == known_count
    if name.split()[1] in FREE_OF_LIBM:
        assert (digest, first) == (known_digest, known_first)
    assert [float(value) for value in first] == pytest.approx([float(value) for value in known_first], rel=1e-6)


def test_nothing_more_is_drawn(drawn: dict[str, list[str]]) -> None:
    assert list(drawn) == list(EXPECTED)
