"""Typed messages: what is well-formed is read back unchanged, what is not is a MessageError, whatever it is."""

from __future__ import annotations

import copy
import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.protocol.fields import report
from harness.protocol.messages import (
    Attach,
    Broken,
    Burst,
    BurstDone,
    Call,
    CallClaim,
    CallMode,
    EmptyTimed,
    LaunchMode,
    Load,
    Loaded,
    Locate,
    Located,
    MessageError,
    OutputClaim,
    Prepare,
    Ready,
    Region,
    Stage,
    parse_reply,
)

CLAIM = CallClaim(
    device_s=1e-3,
    window_s=2e-3,
    tree={"format": 1},
    leaves=(OutputClaim(type="Tensor", shape=(2, 3), dtype="float32", device="cuda", address=2**60),),
    state_missing=("running_mean",),
)
REPLIES = [
    Loaded(unmatched=("a",), copied=("b", "c"), notes=()),
    BurstDone(claims=(CLAIM, CLAIM), reports=({"kind": "data_race"},)),
    BurstDone(claims=(CLAIM,), reports=(), peak_bytes=2**33),
    Broken(stage=Stage.CALL, kind="RuntimeError", message="no", trace="Traceback", call=3),
]
LOCATED = Located(places=(("cuda.cu", 7), None))


@pytest.mark.parametrize(
    "reply", [*REPLIES, EmptyTimed(few_s=4e-6, many_s=9e-6), Ready(), Ready(refused="not captured")]
)
def test_replies_come_back_unchanged(reply: Any) -> None:
    assert parse_reply(reply.to_json()) == reply


def test_requests_come_back_unchanged() -> None:
    call = Call(
        inputs=(Region(offset=0, shape=(4,), dtype="float32"),),
        outputs=(Region(offset=512, shape=(), dtype="int64"),),
        state=(),
        seed=7,
        mode=CallMode.COLD,
    )
    burst = Burst(calls=(call,), input_tree={"format": 1}, state_names=("x",), restore_state=True, coerce_device=False)
    burst = replace(burst, contiguous=tuple(range(500)))  # as many outputs as an optimiser's step may have
    assert Burst.from_json(burst.to_json()) == burst


def test_places_come_back_unchanged_and_only_places() -> None:
    held = json.loads(json.dumps(LOCATED.to_json()))
    assert Located.from_json(held) == LOCATED
    assert Locate(sites=(("/m.so", 16),)).to_json() == {"type": "locate", "sites": [["/m.so", 16]]}
    with pytest.raises(MessageError, match="unknown type"):  # a contestant is never asked for them
        parse_reply(held)
    for other in (None, [["cuda.cu"]], [["cuda.cu", -1]], [[7, "cuda.cu"]], ["cuda.cu"], [None] * 5000):
        with pytest.raises(MessageError):
            Located.from_json({"places": other})


def spoiled(value: Any) -> list[Any]:
    """Copies of a JSON value, each with one part replaced by something of another type, or removed."""
    found: list[Any] = []

    def visit(path: list[Any], held: Any) -> None:
        items = held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list) else ()
        for key, item in items:
            for other in ("text", -1.5, None, True, [], {}, [None] * 5000):
                if type(other) is not type(item):
                    changed = copy.deepcopy(value)
                    target = changed
                    for step in path:
                        target = target[step]
                    target[key] = other
                    found.append(changed)
            visit([*path, key], item)

    visit([], value)
    return found


@pytest.mark.parametrize("reply", REPLIES)
def test_a_spoiled_reply_is_refused_or_read_but_never_crashes(reply: Any) -> None:
    refused = 0
    for value in spoiled(reply.to_json()):
        try:
            parse_reply(value)
        except MessageError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("field", ["device_s", "window_s"])
@pytest.mark.parametrize("time", [float("nan"), float("inf"), "1", True, None, 10**400, 1e308, -1e308, 1e-320, -1e-12])
def test_a_time_that_is_no_duration_is_refused(time: object, field: str) -> None:
    value = BurstDone(claims=(CLAIM,), reports=()).to_json()
    value["claims"][0][field] = time
    with pytest.raises(MessageError):
        parse_reply(value)


@pytest.mark.parametrize("time", [0, -1e-3, 1e-9, 1e6])
def test_what_the_rules_on_claims_refuse_is_read(time: float) -> None:
    value = BurstDone(claims=(CLAIM,), reports=()).to_json()
    value["claims"][0]["device_s"] = time
    assert parse_reply(value).claims[0].device_s == time  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "value",
    [
        {"type": "ready", "refused": 3},
        {"type": "ready", "refused": "x" * 300_000},
        BurstDone(claims=(CLAIM,), reports=(), peak_bytes=-1).to_json(),
    ],
)
def test_short_replies_are_checked_too(value: dict[str, Any]) -> None:
    with pytest.raises(MessageError):
        parse_reply(value)


def test_preparing_carries_the_whole_burst() -> None:
    burst = Burst(calls=(), input_tree={"format": 1}, state_names=(), restore_state=False, coerce_device=True)
    value = Prepare(burst=burst, launch_mode=LaunchMode.QUEUED, number=7).to_json()
    assert Burst.from_json(value) == burst
    assert (value["type"], LaunchMode(value["manner"]), value["number"]) == ("prepare", LaunchMode.QUEUED, 7)


def test_places_are_sent_by_name() -> None:
    place = Region(offset=64, shape=(2,), dtype="float32")
    load = Load(source="", filename="a.py", modules=(), init_tree={}, init_slots=(), state={"w": place}, seed=1)
    assert load.to_json()["state"] == {"w": place.to_json()}
    assert Load.from_json(load.to_json()) == load


@given(st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.integers())))
def test_arbitrary_objects_are_refused(value: dict[str, Any]) -> None:
    with pytest.raises(MessageError):
        parse_reply(value)


@pytest.mark.parametrize("value", [None, "3e-6", True, [3e-6], float("nan"), float("inf"), 10**400, 1e300])
def test_an_empty_calls_time_is_a_number(value: Any) -> None:
    with pytest.raises(MessageError):
        parse_reply({"type": "empty_timed", "few_s": value, "many_s": 9e-6})
    with pytest.raises(MessageError):
        parse_reply({"type": "empty_timed", "few_s": 4e-6, "many_s": value})


def test_findings_are_cut_to_what_a_record_has_room_for() -> None:
    place = {"kernel": "k" * 2000, "line": 3, "block": [1, 2, 3], "thread": None, "share": 0.5, "known": True}
    value = BurstDone(claims=(CLAIM,), reports=()).to_json() | {"reports": [place] * 4000}
    held = parse_reply(value)
    assert isinstance(held, BurstDone)
    assert len(held.reports) == 128
    assert all(len(json.dumps(dict(report))) < 500 for report in held.reports)
    assert {name: found for name, found in held.reports[0].items() if name != "kernel"} == {
        name: found for name, found in place.items() if name != "kernel"
    }


@pytest.mark.parametrize(
    "finding",
    [7, "x", {"kind": {"deep": 1}}, {"block": [[1]]}, {"line": 2**64}, {f"field {i}": 1 for i in range(33)}],
)
def test_what_is_no_finding_is_refused(finding: Any) -> None:
    for held in (
        BurstDone(claims=(), reports=()),
        Broken(stage=Stage.CALL, kind="RuntimeError", message="no", trace="", call=0),
    ):
        with pytest.raises(MessageError):
            parse_reply(held.to_json() | {"reports": [finding]})


@pytest.mark.parametrize("name", ["unmatched", "differing"])
def test_a_reply_without_one_of_its_fields_is_none(name: str) -> None:
    """A default is for the sender only."""
    value = Loaded(unmatched=(), copied=(), notes=()).to_json()
    assert parse_reply(value) == Loaded(unmatched=(), copied=(), notes=())
    del value[name]
    with pytest.raises(MessageError):
        parse_reply(value)


def test_a_finding_is_of_numbers_places_and_texts_within_bounds() -> None:
    assert report({"index": 2**64 - 1, "at": [0, -1], "message": "no"}) == {
        "index": 2**64 - 1,
        "at": [0, -1],
        "message": "no",
    }
    for value in ({"index": 2**64}, {"at": [2**64]}, {"at": {}}, {"at": [1.5, []]}):
        with pytest.raises(MessageError):
            report(value)


def test_nothing_is_promised_that_is_not_said() -> None:
    attach = {field.name: field.default for field in fields(Attach)}
    assert attach["own_allocations"] is False
    claim = OutputClaim(type="Tensor", shape=(2, 3), dtype="float32", device="cuda", address=2**60)
    assert claim.contiguous is True
