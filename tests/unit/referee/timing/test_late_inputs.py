"""Inputs that arrive at the last moment: real draws into a real arena, on the host device, on a GPU with `-m gpu`."""

from __future__ import annotations

import random
import textwrap
from pathlib import Path

import pytest
import torch

from harness.core.choices import DeviceKind
from harness.core.problem import InputRules, Problem, Workload, digest_text
from harness.devices.device import open_device
from harness.referee.problem.workspace import Workspace
from harness.referee.timing.late_inputs import SECTOR_WORDS, SECTORS_FOR_ONE, LateInputs

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, places, half, flags):
        return torch.index_select(x, 0, places) * half.float() + flags

def get_inputs():
    transposed, with_gaps = torch.randn(7, 31).t(), torch.randn(26, 7).half()[::2]
    return [transposed, torch.randint(0, 31, (13,)), with_gaps, torch.rand(13, 7) > 0.5]

def get_init_inputs():
    return []
"""
NOTHING = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ones(3, device=x.device) + x.sum()

def get_inputs():
    return [torch.zeros(0)]

def get_init_inputs():
    return []
"""
SETS = (0, 2, 3)


@pytest.fixture(params=[DeviceKind.HOST, pytest.param(DeviceKind.CUDA, marks=pytest.mark.gpu)])
def kind(request: pytest.FixtureRequest) -> DeviceKind:
    found: DeviceKind = request.param
    return found


def workspace_of(kind: DeviceKind, source: str) -> Workspace:
    text = textwrap.dedent(source)
    problem = Problem(
        id="level1/8",
        name="gather",
        path=Path("8.py"),
        source=text,
        digest=digest_text(text),
        rules=InputRules(variants=()),
    )
    return Workspace(problem, Workload(name="full"), open_device(kind), sets_wanted=4, secret=random.Random(5))


def values(workspace: Workspace, index: int) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in workspace.tensors(workspace.sets[index].inputs)]


def test_some_words_of_each_input_come_last_and_then_all_is_as_drawn(kind: DeviceKind) -> None:
    workspace = workspace_of(kind, PROBLEM)
    for index in range(4):
        workspace.draw(index)
    before = {index: values(workspace, index) for index in range(4)}
    coming = LateInputs(workspace, SETS)
    coming.draw()
    for index in range(4):
        # Compared as bytes, here and below: a NaN is no equal of itself.
        assert all(map(same, values(workspace, index), before[index])), "nothing is there before it is delivered"
    coming.deliver()
    almost = {index: values(workspace, index) for index in SETS}
    for index in SETS:
        assert workspace.changed_inputs([index])[0], "not complete"
    coming.complete()
    for index in SETS:
        assert workspace.changed_inputs([index]) == [()], "as drawn"
        floats, places, halves, _ = almost[index]
        drawn = values(workspace, index)
        assert 0 < int(floats.isnan().sum()) <= 8, "four, less those and more by sectors that stand in for others"
        assert not same(halves, drawn[2])
        assert int(places.min()) >= 0, "decoys are valid too"
        assert int(places.max()) < 31
        assert torch.equal(floats.isnan() | (floats != drawn[0]), floats != drawn[0])
        wrong = (
            (floats != drawn[0]).t().flatten()[: floats.numel() // SECTOR_WORDS * SECTOR_WORDS].view(-1, SECTOR_WORDS)
        )
        whole = wrong.all(1).sum()
        assert 0 < int(wrong.any(1).sum()) <= 4 + max(1, wrong.shape[0] // SECTORS_FOR_ONE)
        assert int(whole) == 1, "a sector that is another one, of an input of a few hundred words"
        assert not any(map(same, drawn[:1], before[index][:1])), "new values"
    assert all(map(same, values(workspace, 1), before[1])), "another set is left alone"
    workspace.close()


def test_two_arrivals_hold_other_words_back(kind: DeviceKind) -> None:
    workspace = workspace_of(kind, PROBLEM)
    found = set()
    for _ in range(4):
        coming = LateInputs(workspace, SETS)
        coming.draw()
        coming.deliver()
        found.add(tuple(values(workspace, 2)[0].isnan().nonzero().flatten().tolist()))
        coming.complete()
    assert len(found) > 1
    workspace.close()


LARGE = """
import torch

class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b.float()

def get_inputs():
    return [torch.rand(96, 512), torch.randint(0, 1000, (512, 48))]

def get_init_inputs():
    return []
"""


def test_who_mends_what_shows_as_held_back_is_left_with_what_does_not(kind: DeviceKind) -> None:
    """It computes without the words that are NaN, and puts them in once the clock runs."""
    workspace = workspace_of(kind, LARGE)
    coming = LateInputs(workspace, SETS)
    coming.draw()
    coming.deliver()
    early = {index: values(workspace, index) for index in SETS}
    coming.complete()
    for index in SETS:
        drawn = values(workspace, index)
        seen = early[index][0].isnan()
        mended = torch.where(seen, drawn[0], early[index][0])
        for had, has in ((mended, drawn[0]), (early[index][1].view(-1), drawn[1].view(-1))):
            other = (had.contiguous().view(torch.int32) != has.contiguous().view(torch.int32)).view(-1, SECTOR_WORDS)
            share = int(other.any(1).sum()) / other.shape[0]
            assert 0.7 / SECTORS_FOR_ONE < share <= 1.0 / SECTORS_FOR_ONE, "drawn with repetition"
        rows = (mended != drawn[0]).any(1)
        assert int(rows.sum()) > 0.9 * rows.numel(), "their products are others"
    workspace.close()


def test_outputs_beside_them_are_left_alone(kind: DeviceKind) -> None:
    workspace = workspace_of(kind, PROBLEM)
    coming = LateInputs(workspace, SETS)
    coming.draw()
    outputs = [workspace.tensors(held.outputs) for held in workspace.sets]
    for number, tensors in enumerate(outputs):
        for tensor in tensors:
            tensor.fill_(number + 0.5)
    coming.deliver()
    coming.complete()
    for number, tensors in enumerate(outputs):
        assert all(bool((tensor == number + 0.5).all()) for tensor in tensors)
    workspace.close()


def test_inputs_without_elements_arrive_too(kind: DeviceKind) -> None:
    workspace = workspace_of(kind, NOTHING)
    coming = LateInputs(workspace, SETS)
    coming.draw()
    coming.deliver()
    coming.complete()
    assert workspace.changed_inputs([0]) == [()]
    workspace.close()


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))
