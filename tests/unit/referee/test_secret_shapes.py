"""Secret shapes before the referee: one process, a verdict a shape, and no size before its inputs.

Everything here runs in real sandboxed processes; the same cases run on a GPU with `-m gpu`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.choices import DeviceKind
from harness.core.problem import ListedShape, Problem, ShapeRules, SizeRange, Workload
from harness.core.stats import SpeedupEstimate, geometric_mean
from harness.core.status import Status
from harness.protocol.channel import Channel
from harness.referee.problem.size_ranges import DrawnShape
from harness.referee.referee import Outcome, Referee, Task
from harness.referee.secret_shapes import ShapeVerdict, brief, scored
from harness.sandbox.zygote import Zygote
from tests.unit.referee.test_referee import config, model, problem

KEY = "5" * 64
"""Key of the secret sizes, so that each run of these tests has the same ones."""

SOFTMAX = problem()
"""Rows and columns; the shown shape is 37 x 91."""

LINEAR = problem("""
    import torch

    BATCH = 24
    FEATURES = 48


    class Model(torch.nn.Module):
        def __init__(self, features):
            super().__init__()
            self.linear = torch.nn.Linear(features, 17)

        def forward(self, x):
            return self.linear(x)


    def get_inputs():
        return [torch.rand(BATCH, FEATURES)]


    def get_init_inputs():
        return [FEATURES]
""")


@pytest.fixture(scope="module", params=[DeviceKind.HOST, pytest.param(DeviceKind.CUDA, marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> DeviceKind:
    kind: DeviceKind = request.param
    return kind


@pytest.fixture(scope="module")
def zygote(device: DeviceKind, contestant_zygote: Callable[[DeviceKind], Zygote]) -> Zygote:
    return contestant_zygote(device)


@pytest.fixture(scope="module")
def referee(device: DeviceKind, zygote: Zygote) -> Iterator[Referee]:
    with Referee(config(device, shapes=3), zygote) as held:
        yield held


def judge(
    referee: Referee, source: str, tmp_path: Path, held: Problem = SOFTMAX, *, timed: bool = False, key: str = KEY
) -> Outcome:
    return referee.judge(
        Task(
            problem=held,
            workload=Workload(name="full"),
            source=source,
            filename="23_test.py",
            modules=(),
            readable=(),
            log_path=tmp_path / "log",
            timed=timed,
            shape_key=key,
        )
    )


def sizes_of(outcome: Outcome) -> list[dict[str, int]]:
    return [verdict["sizes"] for verdict in outcome.evidence["shapes"]["verdicts"]]


def test_a_general_solution_passes_at_every_shape(referee: Referee, tmp_path: Path) -> None:
    outcome = judge(referee, model("return torch.softmax(x, dim=-1)"), tmp_path)
    assert outcome.status is Status.passed, outcome.reason
    assert "at 3 secret sizes, too" in outcome.reason
    verdicts = outcome.evidence["shapes"]["verdicts"]
    assert [verdict["status"] for verdict in verdicts] == ["passed"] * 3
    assert len({json.dumps(sizes) for sizes in sizes_of(outcome)}) == 3
    assert {"ROWS": 37, "COLUMNS": 91} not in sizes_of(outcome)
    assert outcome.evidence["seeds"]["shapes"] == KEY


def test_wrong_at_one_secret_size_is_wrong(referee: Referee, tmp_path: Path) -> None:
    general = judge(referee, model("return torch.softmax(x, dim=-1)"), tmp_path)
    first, second, third = sizes_of(general)
    body = f"""
        y = torch.softmax(x, dim=-1)
        return y if x.shape[0] != {second["ROWS"]} else y + 1.0
    """
    outcome = judge(referee, model(body), tmp_path)
    assert outcome.status is Status.wrong_value
    named = f"secret sizes ROWS={second['ROWS']}, COLUMNS={second['COLUMNS']}"
    assert outcome.reason.startswith(f"right at the shown sizes, but at {named}: ")
    assert [row["status"] for row in outcome.evidence["shapes"]["verdicts"]] == ["passed", "wrong_value", "passed"]
    assert outcome.evidence["failed_at_sizes"] == second
    assert sizes_of(outcome) == [first, second, third], "solutions of one run have the same sizes"


def test_other_keys_draw_other_sizes(referee: Referee, tmp_path: Path) -> None:
    solution = model("return torch.softmax(x, dim=-1)")
    assert sizes_of(judge(referee, solution, tmp_path)) != sizes_of(judge(referee, solution, tmp_path, key="6" * 64))


def test_wrong_at_the_shown_size_needs_no_secret_ones(referee: Referee, tmp_path: Path) -> None:
    outcome = judge(referee, model("return x"), tmp_path)
    assert outcome.status is Status.wrong_value
    assert "shapes" not in outcome.evidence


def test_one_process_and_one_import(referee: Referee, tmp_path: Path) -> None:
    head = """
        import os
        IMPORTED = os.environ.setdefault("IMPORTED", "0")
        os.environ["IMPORTED"] = str(int(IMPORTED) + 1)
    """
    outcome = judge(referee, model("assert IMPORTED == '0'\nreturn torch.softmax(x, dim=-1)", head), tmp_path)
    assert outcome.status is Status.passed, outcome.reason


COUNTED = """
import torch
MADE = []

class ModelNew(torch.nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        MADE.append(arguments)
        assert len(MADE) <= {most}, f"constructed for {{MADE}}"
        {layer}

    def forward(self, x):
        return {forward}
"""


def test_the_same_arguments_keep_the_model(referee: Referee, tmp_path: Path) -> None:
    source = COUNTED.format(most=1, layer="", forward="torch.softmax(x, dim=-1)")
    outcome = judge(referee, source, tmp_path)
    assert outcome.status is Status.passed, outcome.reason


def test_other_arguments_make_another_model(referee: Referee, tmp_path: Path) -> None:
    layer = "self.linear = torch.nn.Linear(arguments[0], 17)"
    outcome = judge(referee, COUNTED.format(most=5, layer=layer, forward="self.linear(x)"), tmp_path, LINEAR)
    assert outcome.status is Status.passed, outcome.reason
    assert len({sizes.get("FEATURES", 48) for sizes in sizes_of(outcome)} - {48}) > 1
    once = judge(referee, COUNTED.format(most=1, layer=layer, forward="self.linear(x)"), tmp_path, LINEAR)
    assert once.status is Status.bad_constructor, once.reason
    assert "at secret sizes" in once.reason


def test_a_solution_may_take_over_the_weights_at_every_shape(referee: Referee, tmp_path: Path) -> None:
    layer = "torch.rand(3); self.linear = torch.nn.Linear(arguments[0], 17)"  # draws its weights in another order
    outcome = judge(referee, COUNTED.format(most=5, layer=layer, forward="self.linear(x)"), tmp_path, LINEAR)
    assert outcome.status is Status.passed, outcome.reason
    assert outcome.evidence["state"]["copied"]


def test_a_failed_attachment_is_the_solutions_failure(referee: Referee, tmp_path: Path) -> None:
    body = """
        from harness.devices import host
        def broken(*_):
            raise OSError("no shared memory")
        for module in list(__import__("sys").modules.values()):
            for name in ("HostDevice", "CudaDevice"):
                if isinstance(getattr(module, name, None), type):
                    getattr(module, name).attach = broken
        return torch.softmax(x, dim=-1)
    """
    outcome = judge(referee, model(body), tmp_path)
    assert outcome.status is Status.runtime_error, "a harness_error would count nowhere"
    assert "no shared memory" in outcome.reason


def test_the_end_of_the_process_ends_the_shapes(referee: Referee, tmp_path: Path) -> None:
    body = """
        if x.shape != (37, 91):
            import os
            os._exit(3)
        return torch.softmax(x, dim=-1)
    """
    outcome = judge(referee, model(body), tmp_path)
    assert outcome.status is Status.crashed
    assert len(outcome.evidence["shapes"]["verdicts"]) == 1
    assert len(outcome.evidence["shapes"]["unjudged"]) == 2


def test_the_contestant_learns_no_size_before_its_inputs(
    referee: Referee, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = ShapeRules(ranges={"ROWS": SizeRange(low=11, high=29), "COLUMNS": SizeRange(low=93, high=113, step=2)})
    held = replace(SOFTMAX, shapes=rules, digest="0" * 64)
    sent: list[dict[str, Any]] = []
    send = Channel.send

    def recorded(self: Channel, message: Any, *rest: Any, **more: Any) -> None:
        if message.get("type") in ("open", "attach", "load", "burst", "take_state", "take_census"):
            calls = [{**call, "late": []} for call in message.get("calls", ())]  # places and values of withheld words
            sent.append({**message, "calls": calls})
        send(self, message, *rest, **more)

    monkeypatch.setattr(Channel, "send", recorded)
    outcome = judge(referee, model("return torch.softmax(x, dim=-1)"), tmp_path, held)
    assert outcome.status is Status.passed, outcome.reason
    shapes = [[sizes["ROWS"], sizes["COLUMNS"]] for sizes in sizes_of(outcome)]
    assert len(shapes) == 3
    for shape in shapes:
        told = [number for number, message in enumerate(sent) if f"{shape}" in json.dumps(message)]
        assert sent[told[0]]["type"] == "burst", "sizes come with the inputs of a call"
        before = json.dumps(sent[: told[0]])
        assert f"[{shape[0]}, " not in before
        assert f", {shape[1]}]" not in before
    loads = [message for message in sent if message["type"] == "load"]
    assert [message["keep"] for message in loads] == ["nothing", *["model"] * 4]
    assert "ROWS" not in json.dumps(loads)


def test_a_problem_without_other_sizes_says_so(referee: Referee, tmp_path: Path) -> None:
    fixed = problem(SOFTMAX.source.replace("rand(ROWS, COLUMNS)", "rand(37, 91)"))
    outcome = judge(referee, model("return torch.softmax(x, dim=-1)"), tmp_path, fixed)
    assert outcome.status is Status.passed
    assert "one_shape" in outcome.labels
    assert "write its sizes as names at the top level" in outcome.evidence["shapes"]["why_fewer"]


def test_a_faulty_shape_is_not_the_solutions_fault(referee: Referee, tmp_path: Path) -> None:
    source = SOFTMAX.source.replace("torch.rand(ROWS, COLUMNS)", "made()").replace(
        "def get_inputs",
        "def made():\n    x = torch.rand(ROWS, COLUMNS)\n"
        "    assert x.is_meta or ROWS in (37, 74), 'odd'\n    return x\n\n\ndef get_inputs",
    )
    held = replace(
        problem(source), shapes=ShapeRules(listed=(ListedShape(sizes={"ROWS": 74}), ListedShape(sizes={"ROWS": 75})))
    )
    outcome = judge(referee, model("return torch.softmax(x, dim=-1)"), tmp_path, held)
    assert outcome.status is Status.passed, outcome.reason
    assert sizes_of(outcome) == [{"ROWS": 74}]
    (left_out,) = outcome.evidence["shapes"]["unjudged"]
    assert left_out.startswith("ROWS=75: ")


def test_a_timed_solution_gets_a_score(referee: Referee, tmp_path: Path) -> None:
    outcome = judge(referee, model("return torch.softmax(x, dim=-1)"), tmp_path, timed=True)
    assert outcome.status is Status.passed, outcome.reason
    assert outcome.timing is not None
    shapes = outcome.timing["shapes"]
    speedups = [row["speedup"] for row in shapes["speedups"]]
    assert len(speedups) == 3
    assert outcome.speedup == outcome.timing["speedup"]["speedup"]
    assert outcome.speedup == pytest.approx(math.prod(speedups) ** (1 / 3))
    assert shapes["gap"]["speedup"] == pytest.approx(shapes["shown"]["speedup"] / outcome.speedup)
    assert outcome.timing["speedup"]["low"] < outcome.speedup < outcome.timing["speedup"]["high"]
    assert "x there, " in outcome.reason


def test_the_referee_keeps_the_shapes_of_a_run_ready(referee: Referee, tmp_path: Path) -> None:
    solution = model("return torch.softmax(x, dim=-1)")
    first = judge(referee, solution, tmp_path)
    workspace = referee.at_hand.workspace
    second = judge(referee, solution, tmp_path)
    assert referee.at_hand.workspace is workspace
    assert sizes_of(first) == sizes_of(second)
    parked = [held for held, _ in referee.at_hand._parked.values()]
    assert {held.workload.name for held in parked} == {"secret-1", "secret-2", "secret-3"}
    judge(referee, solution, tmp_path, key="7" * 64)
    assert not {id(held) for held in parked} & {id(held) for held, _ in referee.at_hand._parked.values()}


def timing(speedup: float, width: float = 1.01) -> dict[str, Any]:
    estimate = SpeedupEstimate(
        speedup=speedup, low=speedup / width, high=speedup * width, confidence=0.95, pairs=8, method="signed-rank"
    )
    return {"speedup": estimate.to_json(), "noise_floor": {"log_width": 0.005}}


def verdict(speedup: float, weight: float = 1.0) -> ShapeVerdict:
    shape = DrawnShape(workload=Workload(name="secret-1", sizes={"N": 1}), weight=weight)
    return ShapeVerdict(shape=shape, status=Status.passed, reason="right", timing=timing(speedup))


def test_the_score_is_the_geometric_mean_with_its_interval() -> None:
    score, gap, held = scored(timing(4.0), [verdict(1.0), verdict(4.0)])
    assert score.speedup == pytest.approx(2.0)
    assert score.low == pytest.approx(2.0 * 1.01 ** -(2**-0.5))
    assert gap.speedup == pytest.approx(2.0)
    assert held["speedup"] == score.to_json()
    assert held["shapes"]["over_sizes"]["high"] > score.high, "other sizes would differ by more than the noise"  # type: ignore[operator]
    assert held["noise_floor"] == {"log_width": 0.005, "shown_log_width": 0.005}


def test_what_relaunched_work_takes_longer_counts_at_secret_shapes_too() -> None:
    score, _, held = scored({**timing(2.0), "relaunched": {"factor": 1.25}}, [verdict(2.5), verdict(2.5)])
    assert score.speedup == pytest.approx(2.0)
    assert [each["speedup"] for each in held["shapes"]["speedups"]] == pytest.approx([2.0, 2.0])


def test_calls_weigh_the_score() -> None:
    score, _, held = scored(timing(1.0), [verdict(1.0, 3.0), verdict(16.0, 1.0)])
    assert score.speedup == pytest.approx(2.0)
    assert held["shapes"]["weighted"]


def test_a_mean_of_single_pairs_has_no_interval() -> None:
    single = SpeedupEstimate(speedup=2.0, low=None, high=None, confidence=0.95, pairs=1, method="single pair")
    assert geometric_mean([single, single], [1, 1]).low is None


def test_a_shape_takes_less_time_than_the_shown_one() -> None:
    held = config(DeviceKind.HOST, budget_s=30.0, seeds=5, min_samples=100, relative_half_width=0.005)
    short = brief(held)
    assert (short.seeds, short.min_samples, short.relative_half_width) == (1, 8, 0.02)
    assert short.budget_s < 2.0
