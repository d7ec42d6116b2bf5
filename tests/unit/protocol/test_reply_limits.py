"""Replies have a limit from what was asked, and the largest that is accepted is parsed in moments."""

from __future__ import annotations

import json
import socket
import statistics
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.core.status import Status
from harness.protocol import channel as channel_module
from harness.protocol.channel import Channel, FrameTooLarge, decode, pair
from harness.protocol.fields import MAX_REPORTS, MAX_TRACE
from harness.protocol.messages import Broken, Burst, BurstDone, Call, CallClaim, CallMode, OutputClaim, Region, Stage
from harness.protocol.reply_limits import BASE, ReplyLimits
from tests.support.judged_on_host import judged_on_host

PARSED_WITHIN_S = 0.5
"""The slowest takes 0.016 s on an idle processor; frames of 16 MiB, which were accepted before, took 15 s."""


def burst(calls: int, outputs: int) -> Burst:
    place = Region(offset=0, shape=(4, 4), dtype="float32")
    call = Call(inputs=(place,), outputs=(place,) * outputs, state=(), seed=0, mode=CallMode.COLD)
    return Burst(calls=(call,) * calls, input_tree={}, state_names=(), restore_state=False, coerce_device=False)


def answer(calls: int, outputs: int) -> bytes:
    """What a contestant says of a burst, with long numbers."""
    leaf = OutputClaim(type="torch.nn.Parameter", shape=(10**6,) * 8, dtype="bfloat16", device="cuda:0", address=2**47)
    items = [{"kind": "tensor", "index": number} for number in range(outputs)]
    claim = CallClaim(
        device_s=1.2345678901234567e-05,
        window_s=1.2345678901234567e-05,
        tree={"format": 1, "slots": outputs, "root": {"kind": "list", "items": items}},
        leaves=(leaf,) * outputs,
        state_missing=(),
        reshaped=((0, (10**6,) * 8),),
    )
    return json.dumps(BurstDone(claims=(claim,) * calls, reports=(), peak_bytes=2**40).to_json()).encode()


@pytest.mark.parametrize("calls", [1, 12, 300])
@pytest.mark.parametrize("outputs", [1, 3, 100])
def test_what_was_asked_for_fits(calls: int, outputs: int) -> None:
    limits = ReplyLimits()
    asked = burst(calls, outputs)
    assert limits.of(asked.to_json()).refusal(answer(calls, outputs)) is None
    limits.of(asked.to_json() | {"type": "prepare"})
    assert limits.of({"type": "collect"}).refusal(answer(calls, outputs)) is None
    assert limits.of({"type": "go"}) == BASE


def test_an_exception_with_all_its_findings_fits_whatever_its_letters() -> None:
    finding = {"kind": "data_race", "message": "m" * 300, "kernel": "k" * 300, "first": [1, 2, 3], "line": 10}
    for letter in ("x", "ä", "\U0001f600", "\ud800"):
        broken = Broken(
            stage=Stage.CALL,
            kind="Error",
            message=letter * 300_000,
            trace=letter * 300_000,
            reports=(finding,) * MAX_REPORTS,
        )
        told = broken.to_json()
        assert len(told["message"]) == len(told["trace"]) == MAX_TRACE
        assert BASE.refusal(json.dumps(told).encode()) is None


def test_all_names_of_a_large_state_fit() -> None:
    names = [f"layers.{number}.attention.projection.weight" for number in range(4000)]
    limits = ReplyLimits()
    reply = json.dumps({"type": "loaded", "unmatched": names, "copied": [], "notes": [], "differing": []}).encode()
    assert limits.of({"type": "load", "state": dict.fromkeys(names)}).refusal(reply) is None
    assert limits.of({"type": "take_state"}).refusal(reply) is None


COUNT, BYTES = BASE.values - 3, BASE.nbytes - 20
BOMBS = {
    "numbers": b'{"a":[' + b"1," * COUNT + b"0]}",
    "long numbers": b'{"a":[' + (b"1" * 36 + b",") * COUNT + b"0]}",
    "longest numbers": b'{"a":[' + (b"1" * 299 + b",") * (BYTES // 300) + b"0]}",
    "fractions": b'{"a":[' + (b"1." + b"1" * 30 + b"e-5,") * COUNT + b"0]}",
    "lists": b'{"a":[' + b"[]," * (COUNT // 2) + b"0]}",
    "nested lists": b'{"a":[' + (b"[" * 60 + b"]" * 60 + b",") * (COUNT // 61) + b"0]}",
    "objects": b'{"a":[' + b"{}," * (COUNT // 2) + b"0]}",
    "keys": b"{" + b",".join(b'"%030x":1' % number for number in range(COUNT)) + b"}",
    "a text": b'{"a":"' + b"x" * BYTES + b'"}',
    "escapes": b'{"a":"' + b"\\u0041" * (BYTES // 6) + b'"}',
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_the_worst_that_is_accepted_is_parsed_in_moments(bomb: str) -> None:
    payload = BOMBS[bomb]
    assert BASE.refusal(payload) is None
    took_s = []
    for _ in range(3):
        begin = time.perf_counter()
        decode(payload)
        took_s.append(time.perf_counter() - begin)
    assert statistics.median(took_s) < PARSED_WITHIN_S


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = pair()
    with Channel(ours) as channel, theirs:
        yield channel, theirs


@pytest.mark.parametrize("payload", [b'{"a":[' + b"[]," * BASE.values + b"0]}", b'{"a":"' + b"x" * BASE.nbytes + b'"}'])
def test_more_is_refused_and_not_parsed(
    ends: tuple[Channel, socket.socket], monkeypatch: pytest.MonkeyPatch, payload: bytes
) -> None:
    def parsed(_: bytes) -> dict[str, Any]:
        raise AssertionError("it was parsed")

    monkeypatch.setattr(channel_module, "decode", parsed)
    channel, theirs = ends
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**22)
    theirs.setblocking(False)
    theirs.send(struct.pack(">I", len(payload)) + payload)
    with pytest.raises(FrameTooLarge):
        channel.receive(5.0, BASE)


def test_a_sender_is_told_before_anything_is_sent(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    with pytest.raises(FrameTooLarge):
        channel.send({"a": [0] * BASE.values}, limit=BASE)
    channel.send({"a": 1}, limit=BASE)
    assert Channel(theirs).receive(5.0).message == {"a": 1}


RETURNS = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        RETURN
"""


def test_honest_mistakes_that_are_long_to_describe_stay_mistakes(tmp_path: Path) -> None:
    records = judged_on_host(
        tmp_path,
        {
            "many": RETURNS.replace("RETURN", "return [x.relu() for _ in range(4000)]"),
            "few": RETURNS.replace("RETURN", "return [x.relu() for _ in range(40)]"),
            "says_much": RETURNS.replace("RETURN", "raise ValueError(str(list(range(200_000))))"),
        },
        budget_s=0.1,
    )
    assert records["few"].status is Status.wrong_structure
    assert records["many"].status is Status.runtime_error
    assert "too much to describe" in records["many"].reason
    assert records["says_much"].status is Status.runtime_error
    assert "ValueError" in records["says_much"].reason
