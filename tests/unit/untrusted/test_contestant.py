"""A contestant's requests, one after another in this process, over a device of the CPU without a host runtime."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.core.choices import DeviceKind
from harness.devices.device import Arena, open_device
from harness.protocol.channel import Channel, ChannelClosed
from harness.protocol.messages import Broken, Burst, BurstDone, Call, CallMode, Loaded, Region, Stage
from harness.protocol.tensor_tree import flatten
from harness.untrusted.contestant import main as contestant_main
from harness.untrusted.contestant.device import OpenedDevice
from harness.untrusted.contestant.main import Contestant

SOLUTION = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3))
        self.factor = factor

    def forward(self, x):
        return x * self.weight * self.factor
"""
INPUT, OUTPUT, WEIGHT = (Region(offset, (3,), "float32") for offset in (0, 512, 1024))
OPENING: dict[str, Any] = {"device": "host", "device_index": 0, "checked": False, "host_runtime": None}


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = open_device(DeviceKind.HOST).allocate(4096)
    arena.tensor(0, (3,), torch.float32).copy_(torch.tensor([1.0, 2.0, 3.0]))
    arena.tensor(1024, (3,), torch.float32).fill_(2.0)
    yield arena
    arena.close()


@pytest.fixture
def contestant(arena: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Contestant:
    monkeypatch.chdir(tmp_path)
    made = Contestant()
    made._opened = OpenedDevice(device=open_device(DeviceKind.HOST))
    attach = {"type": "attach", "nbytes": arena.nbytes, "opening": OPENING, "own_allocations": False}
    assert Loaded.from_json(made.handle(attach, [os.dup(arena.fd)])).unmatched == ()
    return made


def load(source: str = SOLUTION, **changes: Any) -> dict[str, Any]:
    _, tree = flatten([2.0])
    request = {
        "type": "load",
        "source": source,
        "filename": "mine.py",
        "modules": [],
        "init_tree": tree.to_json(),
        "init_slots": [],
        "state": {"weight": WEIGHT.to_json()},
        "seed": 1,
        "drawn": [],
        "dtype": None,
        "keep": "nothing",
    }
    return request | changes


def burst(calls: int = 1) -> dict[str, Any]:
    _, tree = flatten([torch.zeros(3)])
    call = Call(inputs=(INPUT,), outputs=(OUTPUT,), state=(), seed=7, mode=CallMode.COLD)
    return Burst(
        calls=(call,) * calls, input_tree=tree.to_json(), state_names=(), restore_state=True, coerce_device=False
    ).to_json()


def broken(contestant: Contestant, request: dict[str, Any]) -> Broken:
    with pytest.raises(contestant_main._Broke) as caught:
        contestant.handle(request, [])
    assert caught.value.__cause__ is not None
    return contestant.describe(caught.value, caught.value.__cause__)


def test_a_solution_is_loaded_with_the_references_state_and_called(contestant: Contestant, arena: Arena) -> None:
    loaded = Loaded.from_json(contestant.handle(load(), []))
    assert (loaded.copied, loaded.differing, loaded.unmatched) == ((), ("weight",), ())
    contestant.handle(burst(), [])
    assert arena.tensor(512, (3,), torch.float32).tolist() == [0.0] * 3, "as constructed"
    assert Loaded.from_json(contestant.handle({"type": "take_state"}, [])).copied == ("weight",)
    done = BurstDone.from_json(contestant.handle(burst(2), []))
    assert len(done.claims) == 2
    assert all(0 < claim.device_s <= claim.window_s + 1e-3 for claim in done.claims)
    assert done.claims[0].leaves[0].shape == (3,)
    assert done.claims[0].leaves[0].address != done.claims[1].leaves[0].address, "the first result is still alive"
    assert arena.tensor(512, (3,), torch.float32).tolist() == [4.0, 8.0, 12.0]


def test_the_text_that_was_read_is_compiled_whatever_encoding_it_declares(contestant: Contestant, arena: Arena) -> None:
    hidden = "# coding: utf-7\n" + SOLUTION + "\n# +AAo-raise SystemExit('hidden')\n"
    contestant.handle(load(hidden), [])
    contestant.handle(burst(), [])
    assert broken(contestant, load("# coding: utf-7\nx = '\u2265'\n")).kind == "NoModelNew"


def test_the_state_is_put_back_before_each_call(contestant: Contestant, arena: Arena) -> None:
    forgetful = SOLUTION.replace("return x", "self.weight.data.add_(1.0)\n        return x")
    contestant.handle(load(forgetful), [])
    contestant.handle({"type": "take_state"}, [])
    request = burst(2)
    for offset, call in zip((1536, 2048), request["calls"], strict=True):
        call["state"] = [Region(offset, (3,), "float32").to_json()]
    contestant.handle(request | {"state_names": ["weight"]}, [])
    for offset in (1536, 2048):
        assert arena.tensor(offset, (3,), torch.float32).tolist() == [3.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("source", "stage", "kind", "words"),
    [
        ("import nothing_of_this_name\n", Stage.IMPORT, "ModuleNotFoundError", "nothing_of_this_name"),
        ("raise SystemExit(3)\n", Stage.IMPORT, "SystemExit", "3"),
        ("x = 1\n", Stage.CONSTRUCT, "NoModelNew", "defines no class ModelNew"),
        ("ModelNew = 3\n", Stage.CONSTRUCT, "NoModelNew", "defines no class ModelNew"),
        (
            SOLUTION.replace("(self, factor)", "(self)"),
            Stage.CONSTRUCT,
            "TypeError",
            "positional",
        ),
    ],
)
def test_what_breaks_is_told_with_its_stage(
    contestant: Contestant, source: str, stage: Stage, kind: str, words: str
) -> None:
    answer = broken(contestant, load(source))
    assert (answer.stage, answer.kind, answer.call) == (stage, kind, None)
    assert words in answer.message
    assert answer.trace.rstrip().endswith(answer.message.splitlines()[-1])


def test_a_call_that_raises_is_named(contestant: Contestant) -> None:
    counting = "self.n = getattr(self, 'n', 0) + 1\n        assert self.n < 2, 'enough'\n        return x"
    second = SOLUTION.replace("return x", counting)
    contestant.handle(load(second), [])
    answer = broken(contestant, burst(3))
    assert (answer.stage, answer.call, answer.kind) == (Stage.CALL, 1, "AssertionError")
    assert "enough" in answer.message
    assert 'mine.py", line' in answer.trace


def test_a_released_contestant_takes_the_next_solution(contestant: Contestant, arena: Arena) -> None:
    contestant.handle(load(), [])
    contestant.handle({"type": "release"}, [])
    attach = {"type": "attach", "nbytes": arena.nbytes, "opening": OPENING, "own_allocations": True}
    contestant.handle(attach, [os.dup(arena.fd)])
    contestant.handle(load(SOLUTION.replace("* self.factor", "+ 1")), [])
    contestant.handle({"type": "take_state"}, [])
    contestant.handle(burst(), [])
    assert arena.tensor(512, (3,), torch.float32).tolist() == [3.0, 5.0, 7.0]


def test_what_is_no_request_is_an_error_and_no_call_goes_without_preparation(contestant: Contestant) -> None:
    with pytest.raises(ValueError, match="unknown request 'dance'"):
        contestant.handle({"type": "dance"}, [])
    with pytest.raises(ValueError, match="nothing is prepared"):
        contestant.handle({"type": "go"}, [])


def test_it_serves_until_the_channel_is_closed_and_goes_on_after_a_broken_solution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, there = socket.socketpair()

    class Failing:
        def handle(self, message: dict[str, Any], fds: object) -> dict[str, Any]:
            if message["type"] == "release":
                return {"type": "ready"}
            raise contestant_main._Broke(Stage.IMPORT) from ValueError("no")

        def describe(self, broke: contestant_main._Broke, cause: BaseException) -> Broken:
            return Contestant.describe(Contestant(), broke, cause)

    monkeypatch.setattr(contestant_main, "Contestant", Failing)
    with Channel(here) as channel:
        for kind in ("load", "release"):
            channel.send({"type": kind, "state": {}})
        here.shutdown(socket.SHUT_WR)
        with Channel(there) as theirs:
            contestant_main.main(theirs, ())
        replies = [channel.receive(5).message for _ in range(2)]
        assert [reply["type"] for reply in replies] == ["broken", "ready"]
        with pytest.raises(ChannelClosed):
            channel.receive(5)


def test_inputs_have_the_strides_of_their_places_and_changed_shapes_are_told(
    contestant: Contestant, arena: Arena
) -> None:
    source = SOLUTION.replace("return x * self.weight * self.factor", "y = x * 1; x.unsqueeze_(0); return y")
    contestant.handle(load(source), [])
    request = burst()
    request["calls"][0]["inputs"] = [Region(1024, (3,), "float32", (2,)).to_json()]
    arena.tensor(1024, (6,), torch.float32).copy_(torch.arange(6.0))
    (claim,) = BurstDone.from_json(contestant.handle(request, [])).claims
    assert arena.tensor(512, (3,), torch.float32).tolist() == [0.0, 2.0, 4.0]
    assert claim.reshaped == ((0, (1, 3)),)


@pytest.mark.parametrize(("reserved", "kept"), [(2**30, True), (3 * 2**30, False)])
def test_a_result_stays_alive_while_the_process_holds_little_memory(
    monkeypatch: pytest.MonkeyPatch, reserved: int, kept: bool
) -> None:
    contestant = Contestant()
    contestant._device = SimpleNamespace(torch_device=torch.device("cuda", 0))  # type: ignore[assignment]
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: reserved)
    result = torch.zeros(1)
    contestant._keep(result)
    assert (contestant._previous is result) is kept


def attach_again(contestant: Contestant, arena: Arena) -> None:
    """Attach other memory, with the same content."""
    attach = {"type": "attach", "nbytes": arena.nbytes, "opening": OPENING, "own_allocations": False}
    contestant.handle(attach, [os.dup(arena.fd)])


@pytest.mark.parametrize(("keep", "constructed"), [("model", 1), ("module", 2)])
def test_other_memory_is_attached_to_a_loaded_solution(
    contestant: Contestant, arena: Arena, keep: str, constructed: int
) -> None:
    counted = SOLUTION.replace("import torch", "import torch\nMADE = []", 1)
    counted = counted.replace("self.factor = factor", "self.factor = factor\n        MADE.append(factor)")
    contestant.handle(load(counted), [])
    contestant.handle({"type": "take_state"}, [])
    module = contestant._module
    attach_again(contestant, arena)
    reply = Loaded.from_json(contestant.handle(load(source="never imported", keep=keep), []))
    assert contestant._module is module
    assert len(module.MADE) == constructed
    # The model that stays has taken over the reference's values before; a new one has its own.
    assert reply.differing == (() if keep == "model" else ("weight",))
    BurstDone.from_json(contestant.handle(burst(), []))
    assert arena.tensor(512, (3,), torch.float32).tolist() == ([4.0, 8.0, 12.0] if keep == "model" else [0.0] * 3)


def test_a_model_that_stays_gets_its_initial_state_back(contestant: Contestant, arena: Arena) -> None:
    source = SOLUTION.replace("return x", "self.weight.data.add_(1.0); return x")
    contestant.handle(load(source), [])
    contestant.handle(burst(), [])
    attach_again(contestant, arena)
    contestant.handle(load(source, keep="model"), [])
    contestant.handle(burst(), [])
    assert arena.tensor(512, (3,), torch.float32).tolist() == [2.0, 4.0, 6.0]


def test_an_attachment_that_fails_after_loading_is_a_failed_call(contestant: Contestant, arena: Arena) -> None:
    contestant.handle(load(), [])
    with pytest.raises(contestant_main._Broke) as caught:
        contestant.handle({"type": "attach", "nbytes": -1, "opening": OPENING, "own_allocations": False}, [-1])
    assert caught.value.stage is Stage.CALL
