"""Whatever a contestant says, the referee ends with a declared status: the real referee, real frames, a lying peer.

The peer stands where a sandboxed process would: it has the other end of a real channel and never writes an output, so
that nothing it says may make it pass.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harness.core.choices import DeviceKind
from harness.core.labels import LIBRARY_ONLY, NO_CUSTOM_KERNEL, TORCH_ONLY
from harness.core.problem import Problem, Workload, digest_text
from harness.core.record import Record
from harness.core.status import Status, one_line
from harness.core.task import Outcome, RefereeConfig, Task
from harness.protocol.channel import Channel, ChannelClosed, FrameLimit, Received, WireError, decode, pair
from harness.protocol.messages import Burst
from harness.referee.contestants.census_request import take_census
from harness.referee.contestants.failures import MAX_REASON
from harness.referee.contestants.kernel_census import KernelSources, conclude
from harness.referee.contestants.process import ContestantFailed, ContestantProcess
from harness.referee.referee import Referee
from harness.results.reader import timestamp
from harness.results.writer import RunStore
from harness.sandbox import ExitReport, SandboxPolicy, SandboxReport
from harness.sandbox.zygote import Zygote

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return {"y": x * 2, "n": [x.sum(dim=0)]}

def get_inputs():
    return [torch.randn(5, 3)]

def get_init_inputs():
    return []
"""

TREE = {"format": 1, "slots": 2, "root": None}
"""Filled in from the referee's own description when the module is set up."""

Reply = Callable[[dict[str, Any]], bytes]
"""From a request to the bytes sent back for it; no bytes end the connection."""


def frame(value: object) -> bytes:
    payload = json.dumps(value).encode()
    return struct.pack(">I", len(payload)) + payload


LOADED = {"type": "loaded", "unmatched": [], "copied": [], "notes": [], "differing": []}


def honest(request: dict[str, Any]) -> dict[str, Any]:
    """The reply that the harness's own contestant would give, if it wrote nothing."""
    if request["type"] == "take_census":
        row = ["kernel", "_Z4reluPf", "relu(float*)", [4, 1, 1], [256, 1, 1], 16, 0, 0, 0, 1, 2e-6]
        return {"type": "census_taken", "rows": [row, row], "complete": True, "lack": ""}
    if request["type"] != "burst":
        return json.loads(json.dumps(LOADED))  # type: ignore[no-any-return]
    leaves = [
        ["torch.Tensor", [3], "float32", "cuda", 4096, True],
        ["torch.Tensor", [5, 3], "float32", "cuda", 8192, True],
    ]
    claim = {"device_s": 1e-4, "window_s": 2e-4, "tree": TREE, "leaves": leaves, "state_missing": [], "reshaped": []}
    held = {"type": "burst_done", "claims": [claim for _ in request["calls"]], "reports": []}
    return json.loads(json.dumps(held))  # type: ignore[no-any-return]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = [
    "type",
    "claims",
    "reports",
    "tree",
    "leaves",
    "device_s",
    "window_s",
    "root",
    "slots",
    "format",
    "kind",
    "notes",
]


@dataclass(frozen=True)
class Lied:
    """The honest reply with one place replaced: steps lead down (modulo what is there), the last one is replaced."""

    steps: tuple[int, ...]
    value: object

    def __call__(self, request: dict[str, Any]) -> bytes:
        reply: Any = honest(request)
        place = reply
        for step in self.steps:
            keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = keys[step % len(keys)]
            if isinstance(place[key], dict | list) and place[key] and step != self.steps[-1]:
                place = place[key]
                continue
            place[key] = self.value
            break
        return frame(reply)


def whole(value: object) -> Reply:
    return lambda request: frame(value)


def cut(at: float) -> Reply:
    def reply(request: dict[str, Any]) -> bytes:
        data = frame(honest(request))
        return data[: int(len(data) * at)]

    return reply


def raw(data: bytes) -> Reply:
    return lambda request: data


REPORT = st.dictionaries(
    st.sampled_from(["kind", "kernel", "line", "message", "space", "array", "subscript", "other_line"]),
    st.sampled_from(["data_race", "memory_error", "leak", "not_emulated", "\x1b[31m", "\ud800"]) | JSON,
)
BROKEN = st.fixed_dictionaries(
    {
        "type": st.just("broken"),
        "stage": st.sampled_from(["attach", "import", "construct", "call", "other"]),
        "kind": st.sampled_from(["NoModelNew", "NotEmulated", "SyntaxError", "OutOfMemoryError", "ValueError"])
        | st.text(),
        "message": st.text(max_size=40) | st.just("CUDA error: \ud800 out of memory"),
        "trace": st.text(max_size=40),
        "call": st.none() | st.integers(-3, 3),
        "reports": st.lists(REPORT, max_size=2),
    }
)
LIES: st.SearchStrategy[Reply] = st.one_of(
    st.builds(Lied, st.lists(st.integers(0, 7), min_size=1, max_size=6).map(tuple), JSON),
    st.builds(raw, st.binary(max_size=40)),
    st.builds(cut, st.floats(0, 1)),
    st.builds(whole, JSON),
    st.builds(whole, st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6)),
    st.builds(whole, BROKEN),
    st.builds(
        lambda reports: lambda request: frame({**honest(request), "reports": reports}), st.lists(REPORT, max_size=3)
    ),
    st.just(lambda request: frame(honest(request)) * 2),
    st.just(raw(b"\xff\xff\xff\xff")),
    st.just(raw(b"")),
    st.just(whole({"a": [[[[]]]]})),
)


class Liar:
    """One lying peer in place of a child: real channel, a thread that answers each request with the next lie."""

    report = SandboxReport(strength="none", missing={"all": "a thread of the test"})

    def __init__(self, lies: list[Reply]) -> None:
        ours, self._theirs = pair()
        self.channel = Channel(ours, takes_fds=False)  # as the owner of a child does
        self._lies = lies
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        channel = Channel(self._theirs)
        try:
            for lie in [*self._lies, raw(b"")]:
                request = channel.receive(30.0)
                for fd in request.fds:
                    os.close(fd)
                data = lie(request.message)
                if not data:
                    break
                self._theirs.sendall(data)
        except (WireError, OSError):
            pass
        finally:
            self._theirs.close()

    def receive(self, timeout_s: float, limit: FrameLimit | None = None) -> Received:
        return self.channel.receive(timeout_s, limit)

    def pause(self) -> float:
        return time.perf_counter()

    in_line_s = starved_s = 0.0

    def moved(self) -> bool:
        return False

    def is_ending(self) -> bool:
        return not self._thread.is_alive()

    def resume(self) -> None:
        pass

    def send(self, number: signal.Signals) -> None:
        """It takes no notice."""

    def hold(self) -> None:
        pass

    def release(self) -> None:
        pass

    def kill(self) -> ExitReport:
        return ExitReport(exit_code=None, signal=9, cause="killed", wall_s=0.1)

    def wait(self, timeout_s: float | None = None) -> ExitReport | None:
        self._thread.join(min(timeout_s or 0.0, 0.02))
        return None if self._thread.is_alive() else ExitReport(exit_code=1, signal=None, cause="exited", wall_s=0.1)


class Stage:
    """Where a zygote would be: every spawn gives the next liar."""

    def __init__(self) -> None:
        self.lies: list[Reply] = []

    def spawn(self, *_: object) -> Liar:
        return Liar(self.lies)


@pytest.fixture(scope="module")
def stage() -> Stage:
    return Stage()


CONFIG = RefereeConfig(
    device=DeviceKind.HOST,
    device_index=0,
    sandbox="auto",
    checked=False,
    device_policy="strict",
    seeds=2,
    load_timeout_s=60.0,
    call_timeout_s=60.0,
    solution_timeout_s=120.0,
    min_samples=4,
    sets_per_burst=3,
    relative_half_width=0.5,
    budget_s=1.0,
    memory_limit_bytes=2**30,
)
"""With limits that nobody meets: a peer that answers at once does so on a busy machine, too."""

IMPATIENT = replace(CONFIG, load_timeout_s=0.1, call_timeout_s=0.03, solution_timeout_s=5.0)
"""For those of which some never answer; the others may then end as late, too."""


@pytest.fixture(scope="module")
def referee(stage: Stage) -> Iterator[Referee]:
    with Referee(CONFIG, cast("Zygote", stage)) as held:
        TREE.update(held.at_hand.workspace_for(PROBLEM_VALUE, Workload(name="full")).traits.tree.to_json())
        yield held


@pytest.fixture(scope="module")
def impatient(stage: Stage) -> Iterator[Referee]:
    with Referee(IMPATIENT, cast("Zygote", stage)) as held:
        TREE.update(held.at_hand.workspace_for(PROBLEM_VALUE, Workload(name="full")).traits.tree.to_json())
        yield held


PROBLEM_VALUE = Problem(id="level1/1", name="p", path=Path("1_p.py"), source=PROBLEM, digest=digest_text(PROBLEM))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunStore]:
    with RunStore.create(tmp_path_factory.mktemp("run") / "run", config={}, environment={}) as held:
        yield held


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def come_down_to(before: int) -> bool:
    """Whether no more descriptors are open than before, once the liar's thread has closed its own end."""
    deadline = time.monotonic() + 60.0
    while descriptors() > before and time.monotonic() < deadline:
        time.sleep(0.001)
    return descriptors() <= before


def judge(referee: Referee) -> Outcome:
    return referee.judge(
        Task(
            problem=PROBLEM_VALUE,
            workload=Workload(name="full"),
            source="",
            filename="1_a.py",
            modules=(),
            readable=(),
            log_path=Path(os.devnull),
            timed=True,
        )
    )


SETTINGS = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@SETTINGS
@given(st.integers(0, 4), LIES, st.lists(LIES, max_size=2))
@example(2, raw(b""), [])
@example(2, whole({**LOADED}), [])
@example(0, whole(LOADED), [whole({**LOADED, "notes": ["\ud800\x1b]0;x\x07"]})])
def test_no_lie_passes_or_harms_the_referee(
    impatient: Referee, stage: Stage, store: RunStore, truthful: int, lie: Reply, more: list[Reply]
) -> None:
    def true(request: dict[str, Any]) -> bytes:
        return frame(honest(request))

    stage.lies = [*[true] * truthful, lie, *more, *[true] * 3]
    before = descriptors()
    outcome = judge(impatient)
    assert outcome.status in Status
    assert outcome.status is not Status.passed
    record = Record(
        problem="level1/1",
        author="liar",
        solution="liar/level1/1_a.py",
        device=DeviceKind.HOST,
        workload="full",
        status=outcome.status,
        reason=one_line(outcome.reason),
        evidence=outcome.evidence,
        timing=outcome.timing,
        labels=outcome.labels,
        finished_at=timestamp(),
    )
    store.append(record)
    line = json.dumps(record.to_json(), allow_nan=False)
    assert Record.from_json(json.loads(line)).reason == record.reason
    outcome.detail.encode(errors="replace")
    assert come_down_to(before)


def claiming(**fields: object) -> Reply:
    """The honest reply but for what it says of its first call."""

    def reply(request: dict[str, Any]) -> bytes:
        value = honest(request)
        for claim in value.get("claims", [])[:1]:
            claim.update(fields)
        return frame(value)

    return reply


def leaves_with(place: int, value: object) -> Reply:
    first: list[object] = ["torch.Tensor", [3], "float32", "cuda", 4096, True]
    first[place] = value
    return claiming(leaves=[first, ["torch.Tensor", [5, 3], "float32", "cuda", 8192, True]])


@pytest.mark.parametrize(
    ("lie", "status"),
    [
        (leaves_with(2, "float32\nfloat64"), Status.wrong_dtype),
        (leaves_with(2, ""), Status.wrong_dtype),
        (leaves_with(3, "cuda\ncpu"), Status.wrong_device),
        (claiming(tree={"format": 1, "slots": 0, "root": ["other", "a\nb"]}), Status.wrong_structure),
        (claiming(tree={"format": 1, "slots": 0, "root": ["str", "a\nb"]}), Status.wrong_structure),
        (claiming(tree={"format": 1, "slots": 10**12, "root": ["none", None]}), Status.disqualified),
        (claiming(device_s=10**400), Status.disqualified),
        (claiming(device_s=10**300, window_s=10**300), Status.disqualified),
        (claiming(device_s=1e308, window_s=1e308), Status.disqualified),
        (claiming(device_s=1e-320), Status.disqualified),
    ],
)
def test_what_is_said_of_a_call_is_a_verdict_on_who_says_it(
    referee: Referee, stage: Stage, lie: Reply, status: Status
) -> None:
    stage.lies = [claiming()] * 2 + [lie] * 8
    assert judge(referee).status is status


def test_the_truthful_peer_that_writes_nothing_is_caught_by_values(referee: Referee, stage: Stage) -> None:
    """The lies above must be what ends the others: this one says all the right things."""
    stage.lies = [lambda request: frame(honest(request))] * 8
    outcome = judge(referee)
    # Neither the outputs nor the words of the inputs that are held back until the call are written by it.
    assert outcome.status in (Status.non_finite, Status.wrong_value, Status.mutated_input)
    assert "never written" in outcome.reason or "inputs[0]" in outcome.reason


def test_missing_state_that_the_reference_has_not_either_says_nothing(referee: Referee, stage: Stage) -> None:
    stage.lies = [claiming(state_missing=["a\nb"])] * 8
    outcome = judge(referee)
    assert outcome.status in (Status.non_finite, Status.wrong_value, Status.mutated_input)
    assert "never written" in outcome.reason or "inputs[0]" in outcome.reason


def test_a_record_has_room_for_little_of_what_a_peer_says(referee: Referee, stage: Stage) -> None:
    """Records of a run are read whole, by everybody's commands."""
    long = ["n" * 3000] * 200
    loaded = honest({"type": "load"}) | {"notes": long}

    def talkative(request: dict[str, Any]) -> bytes:
        if request["type"] == "load":
            return frame(loaded)
        return frame(honest(request) | ({"reports": [{"k": "v" * 3000}] * 200} if request["type"] == "burst" else {}))

    stage.lies = [talkative] * 8
    assert len(json.dumps(judge(referee).evidence)) < 200_000
    finding = {"kind": "memory_error", "kernel": "k" * 3000}
    broken = {"type": "broken", "stage": "call", "kind": "E", "message": "", "trace": "", "call": 0}
    stage.lies = [
        lambda request: frame(broken | {"reports": [finding] * 200} if request["type"] == "burst" else honest(request))
    ] * 8
    outcome = judge(referee)
    assert outcome.status is Status.memory_error
    assert len(outcome.reason) <= MAX_REASON
    assert len(json.dumps(outcome.evidence)) < 200_000
    loaded |= {"notes": [], "unmatched": long}
    stage.lies = [talkative] * 8
    outcome = judge(referee)
    assert outcome.status is Status.disqualified
    assert len(json.dumps(outcome.evidence)) < 20_000


@SETTINGS
@given(LIES)
@example(lambda request: frame(honest(request)))
@example(whole({"type": "census_taken", "rows": [[]], "complete": True, "lack": ""}))
@example(whole(honest({"type": "take_census"}) | {"lack": "\ud800" * 400}))
def test_no_lie_about_kernels_harms_the_referee(referee: Referee, stage: Stage, lie: Reply) -> None:
    """The census is asked for when a verdict stands: whatever comes, something a record can hold is noted."""
    stage.lies = [lie]
    workspace = referee.at_hand.workspace_for(PROBLEM_VALUE, Workload(name="full"))
    with ContestantProcess(
        cast("Zygote", stage), SandboxPolicy(), Path(os.devnull), memory_limit_bytes=2**30
    ) as contestant:
        noted = take_census(contestant, workspace, coerce=False, timeout_s=0.1)
    assert bool(noted["lack"]) or noted["rows"] == [] or len(noted["rows"]) == 2
    concluded = conclude(noted, KernelSources.of("import torch", None))
    json.dumps(concluded.evidence, allow_nan=False)
    assert set(concluded.labels) <= {TORCH_ONLY, NO_CUSTOM_KERNEL, LIBRARY_ONLY}


@pytest.mark.parametrize("kind", ["not_emulated", "memory_error"])
@pytest.mark.parametrize("reply", ["burst_done", "broken"])
def test_on_a_gpu_findings_of_the_host_device_are_a_lie(stage: Stage, kind: str, reply: str) -> None:
    """There are no such checks there, and one of their findings would count nowhere."""
    held = {
        "broken": {"type": "broken", "stage": "call", "kind": "E", "message": "", "trace": "", "call": None},
        "burst_done": {"type": "burst_done", "claims": [], "peak_bytes": None},
    }
    stage.lies = [whole(held[reply] | {"reports": [{"kind": kind, "message": "", "kernel": "k"}]})]
    nothing = Burst(calls=(), input_tree={}, state_names=(), restore_state=False, coerce_device=False)
    policy = SandboxPolicy(gpu=True)
    with (
        ContestantProcess(cast("Zygote", stage), policy, Path(os.devnull), memory_limit_bytes=2**30) as contestant,
        pytest.raises(ContestantFailed) as refused,
    ):
        contestant.burst(nothing, 5.0)
    assert refused.value.failure.status is Status.disqualified


def test_a_failure_of_the_harness_s_own_code_is_no_finding_of_a_submission(referee: Referee, stage: Stage) -> None:
    broken = {"type": "broken", "stage": "attach", "kind": "E", "message": "", "trace": "", "call": None}
    stage.lies = [whole(broken | {"reports": [{"kind": "data_race"}]})]
    outcome = judge(referee)
    assert outcome.status is Status.harness_error
    assert "reports" not in outcome.evidence


def test_descriptors_sent_along_are_not_kept(referee: Referee, stage: Stage) -> None:
    """Each would fill a place in the referee's table of open files, until it can't start anything any more."""
    before = descriptors()

    class Generous(Liar):
        def _run(self) -> None:
            channel = Channel(self._theirs)
            try:
                for _ in range(3):
                    request = channel.receive(30.0)
                    for fd in request.fds:
                        os.close(fd)
                    socket.send_fds(self._theirs, [frame(honest(request.message))], [0, 1, 2])
            except (ChannelClosed, OSError):
                pass
            finally:
                self._theirs.close()

    class Spawner(Stage):
        def spawn(self, *_: object) -> Liar:
            return Generous([])

    generous = Referee(referee.config, cast("Zygote", Spawner()), device=referee.device)
    with generous:
        outcomes = [judge(generous) for _ in range(3)]
    assert {(outcome.status, outcome.evidence["rule"]) for outcome in outcomes} == {(Status.disqualified, "protocol")}
    assert come_down_to(before)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300) | JSON.map(lambda value: json.dumps(value).encode()))
def test_a_frames_payload_is_an_object_or_a_wire_error(payload: bytes) -> None:
    try:
        value = decode(payload)
    except WireError:
        return
    assert isinstance(value, dict)
    json.dumps(value, allow_nan=False)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=4), st.integers(0, 60))
def test_a_channel_survives_any_bytes_however_they_are_cut(pieces: list[bytes], limit: int) -> None:
    ours, theirs = pair()
    with Channel(ours, max_frame_bytes=limit) as channel:
        for piece in pieces:
            theirs.sendall(piece)
        theirs.close()
        for _ in range(300):
            try:
                assert isinstance(channel.receive(1.0).message, dict)
            except WireError:
                break
        else:
            pytest.fail("a channel gave more frames than bytes")
