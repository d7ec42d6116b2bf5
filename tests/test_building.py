"""What builds need begins as soon as some are expected: before the first one where shapes have to be found out."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.build import BuildCache
from harness.catalog import load_problems
from harness.executors.building import LateZygote
from harness.signature import signature
from harness.zygote import ZygoteError

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(8, 3)]
def get_init_inputs():
    return [3]
"""


def test_a_zygote_starts_when_it_is_expected_and_once(tmp_path: Path) -> None:
    zygote = LateZygote(("json",), tmp_path / "log")
    try:
        zygote.start()
        pid = zygote.pid
        zygote.start()
        assert zygote.pid == pid
        zygote.wait_ready()
        assert zygote.alive
    finally:
        zygote.close()
    with pytest.raises(ZygoteError, match="ended"):
        zygote.start()


def test_builds_are_expected_where_a_problems_shapes_are_not_remembered(tmp_path: Path) -> None:
    folder = tmp_path / "problems" / "level1"
    folder.mkdir(parents=True)
    (folder / "19_relu.py").write_text(PROBLEM)
    problem = load_problems(tmp_path / "problems")["level1/19"]
    cache = BuildCache(tmp_path / "cache", 2**20)
    missed: list[int] = []
    first = signature(problem, cache, on_miss=lambda: missed.append(1))
    again = signature(problem, cache, on_miss=lambda: missed.append(2))
    assert first is not None
    assert first == again
    assert missed == [1]
