"""A problem that can't tell right from wrong scores nobody, unless somebody asks for it knowingly."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.choices import DeviceKind, PrecisionClass
from harness.core.problem import InputRules, Problem, Workload, digest_text
from harness.core.status import Status
from harness.core.task import Outcome, RefereeConfig, Task
from harness.devices.device import open_device
from harness.hostcuda.translate.build import prepare_headers
from harness.referee.problem.loader import ProblemError
from harness.referee.problem.workspace import Workspace
from harness.referee.referee import DEGENERATE, Referee
from harness.referee.soundness import Soundness, taken_for_right
from harness.sandbox.zygote import Zygote
from harness.toolchain import default_root


def problem(forward: str, inputs: str = "torch.randn(37, 53)", variants: tuple[str, ...] = ("zero_mean",)) -> Problem:
    text = (
        "import torch\n\nclass Model(torch.nn.Module):\n"
        f"    def forward(self, x):\n        return {forward}\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\ndef get_init_inputs():\n    return []\n"
    )
    return Problem(
        id="level1/1",
        name="p",
        path=Path("1_p.py"),
        source=text,
        digest=digest_text(text),
        rules=InputRules(variants=variants),
    )


CONSTANT = problem("torch.relu(x.amax(dim=1, keepdim=True) - x.amax(dim=1, keepdim=True).mean(dim=1, keepdim=True))")
SOUND = problem("torch.softmax(x, dim=1)")
SOLUTION = "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return {}\n"


@functools.cache
def config(*, allow: bool) -> RefereeConfig:
    return RefereeConfig(
        host_runtime=str(prepare_headers(default_root()).folder),
        device=DeviceKind.HOST,
        device_index=0,
        sandbox="auto",
        checked=False,
        device_policy="coerce",
        seeds=2,
        load_timeout_s=60.0,
        call_timeout_s=60.0,
        solution_timeout_s=120.0,
        min_samples=4,
        sets_per_burst=3,
        relative_half_width=0.9,
        budget_s=1.0,
        memory_limit_bytes=4 * 2**30,
        allow_degenerate=allow,
    )


@pytest.fixture(scope="module")
def zygote(contestant_zygote: Callable[[DeviceKind], Zygote]) -> Zygote:
    return contestant_zygote(DeviceKind.HOST)


def judge(zygote: Zygote, held: Problem, answer: str, tmp_path: Path, *, allow: bool) -> Outcome:
    with Referee(config(allow=allow), zygote) as referee:
        return referee.judge(
            Task(
                problem=held,
                workload=Workload(name="full"),
                source=SOLUTION.format(answer),
                filename="1_a.py",
                modules=(),
                readable=(),
                log_path=tmp_path / "log",
                timed=False,
            )
        )


def test_a_problem_whose_answer_is_constant_is_refused(zygote: Zygote, tmp_path: Path) -> None:
    outcome = judge(zygote, CONSTANT, "torch.zeros(37, 1)", tmp_path, allow=False)
    assert outcome.status is Status.harness_error
    assert "degenerate problem: it accepts a wrong answer: zeros" in outcome.reason
    assert "--allow-degenerate" in outcome.reason


def test_who_asks_for_it_gets_a_score_with_a_label(zygote: Zygote, tmp_path: Path) -> None:
    outcome = judge(zygote, CONSTANT, "torch.zeros(37, 1)", tmp_path, allow=True)
    assert outcome.status is Status.passed, outcome.reason
    assert DEGENERATE in outcome.labels
    assert "zeros" in outcome.evidence["taken_for_right"]


def test_a_sound_problem_is_judged_as_ever(zygote: Zygote, tmp_path: Path) -> None:
    right = judge(zygote, SOUND, "torch.softmax(x, dim=1)", tmp_path, allow=False)
    wrong = judge(zygote, SOUND, "torch.zeros(37, 53)", tmp_path, allow=False)
    assert (right.status, wrong.status) == (Status.passed, Status.wrong_value)
    assert DEGENERATE not in right.labels
    assert "taken_for_right" not in right.evidence


def test_a_reference_that_gives_two_answers_to_one_call_blames_no_solution(zygote: Zygote, tmp_path: Path) -> None:
    # Another answer with every call, without chance: what it counts is no module's state that would be restored.
    counting = problem("x * next(COUNT)")
    text = counting.source.replace("import torch\n", "import itertools\nimport torch\nCOUNT = itertools.count(1)\n")
    held = replace(counting, source=text, digest=digest_text(text))
    outcome = judge(zygote, held, "x", tmp_path, allow=False)
    assert outcome.status is Status.harness_error
    assert "the reference is not deterministic" in outcome.reason
    drawing = problem("torch.nn.functional.dropout(x, 0.5, training=True)")
    right = judge(zygote, drawing, "torch.nn.functional.dropout(x, 0.5, training=True)", tmp_path, allow=False)
    assert right.status is Status.passed, right.reason


@pytest.mark.parametrize(
    ("forward", "inputs", "variants", "word"),
    [
        ("x * 0", "torch.randn(37, 53)", ("zero_mean",), "zeros"),
        ("(x - x).exp()", "torch.randn(37, 53)", (), "ones"),
        ("x.mean() + 1000", "torch.rand(300, 300)", (), "another call"),
        ("x.argsort(dim=1)", "torch.arange(53.0).repeat(37, 1)", (), "another call"),
        ("torch.cat([x, x * 0])", "torch.randn(37, 53)", ("zero_mean",), "rest zero"),
        ("(x > -9).sum(dim=1)", "torch.rand(37, 53)", (), "the mean of another"),
    ],
)
def test_what_a_problem_takes_for_right(forward: str, inputs: str, variants: tuple[str, ...], word: str) -> None:
    held = problem(forward, inputs, variants)
    device = open_device(DeviceKind.HOST)
    workspace = Workspace(held, Workload(name="full"), device, sets_wanted=3, secret=random.Random(1))
    try:
        assert any(word in name for name in taken_for_right(workspace, PrecisionClass.FP32))
    finally:
        workspace.close()


def test_other_sizes_under_one_name_are_looked_at_too() -> None:
    """The Python API takes any sizes under any name."""
    held = problem("torch.softmax(x, dim=1) * SCALE")
    held = replace(held, source=f"SCALE = 1.0\n{held.source}")
    soundness, device = Soundness(allow_degenerate=False), open_device(DeviceKind.HOST)
    for sizes in ({}, {"SCALE": 0.0}):
        workspace = Workspace(held, Workload(name="full", sizes=sizes), device, sets_wanted=3, secret=random.Random(1))
        try:
            if sizes:
                with pytest.raises(ProblemError, match="accepts a wrong answer: zeros"):
                    soundness.check(workspace)
            else:
                assert soundness.check(workspace) == ()
        finally:
            workspace.close()


@pytest.mark.parametrize(
    ("forward", "apart"),
    [
        ("x.softmax(dim=1)", False),
        ("x + torch.tensor(__import__('os').getpid() and __import__('time').perf_counter_ns() % 1e6 / 1e4)", True),
    ],
    ids=["the same twice", "another each time"],
)
def test_a_reference_is_held_against_itself(forward: str, apart: bool) -> None:
    device = open_device(DeviceKind.HOST)
    held = Workspace(problem(forward), Workload(name="full"), device, sets_wanted=3, secret=random.Random(1))
    try:
        if apart:
            with pytest.raises(ProblemError, match="not deterministic"):
                Soundness(allow_degenerate=False).check(held)
        else:
            assert Soundness(allow_degenerate=False).check(held) == ()
    finally:
        held.close()
