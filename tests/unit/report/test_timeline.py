"""Seconds of devices out of records: what is known adds up, nothing is negative, old records are left out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli import main
from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.core.status import Status
from harness.report import timeline
from harness.results.writer import RunStore


def record(name: str, slot: str | None, begin_s: float = 0.0, end_s: float = 0.0) -> Record:
    evidence: dict[str, object] = {
        "stages_s": {"prepare": 0.5, "open": 0.125, "load": 0.125, "verify": 1.0, "measure": 2.0, "total": 3.75},
        "bursts_s": {"solution": 1.5, "reference": 0.5},
    }
    if slot is not None:
        evidence["ran_on"] = {"slot": slot, "begin_unix_s": 1e9 + begin_s, "end_unix_s": 1e9 + end_s}
    return Record(
        problem="level1/1",
        author="a",
        solution=name,
        device=DeviceKind.CUDA,
        workload="full",
        status=Status.wrong_value,
        reason="r",
        evidence=evidence,
    )


def test_every_second_of_each_device_is_accounted_for() -> None:
    held = [record("x", "g0", 0, 4), record("y", "g1", 1, 6), record("z", "g0", 5, 10), record("old", None)]
    found = timeline.stays(held)
    assert [stay.solution for stay in found] == ["x", "z", "y"]
    for share in timeline.shares(found):
        parts = (share.solution_s, share.reference_s, share.checks_s, share.prepare_s, share.load_s)
        assert share.span_s == 10.0
        assert sum(parts) + share.handling_s + share.idle_s == pytest.approx(10.0)
        assert min(*parts, share.handling_s, share.idle_s) >= 0.0
    first, second = timeline.shares(found)
    assert (first.solutions, first.solution_s, first.idle_s) == (2, 3.0, pytest.approx(1.0))
    assert second.idle_s == pytest.approx(5.0)


@pytest.mark.parametrize("wrong", [None, "x", [1], {}, {"a": 1}, -1, 1e308, True], ids=repr)
@pytest.mark.parametrize("place", ["stages_s", "bursts_s", "ran_on"])
def test_evidence_that_somebody_edited_is_left_out(place: str, wrong: object) -> None:
    whole = record("x", "g0", 0, 4)
    inner = whole.evidence[place]
    for held in (wrong, *({**inner, name: wrong} for name in inner)):
        found = timeline.stays([replace(whole, evidence={**whole.evidence, place: held}), record("y", "g0", 5, 9)])
        assert "y" in [stay.solution for stay in found]
        assert all(stay.begin_s <= stay.end_s <= 1e11 for stay in found)
        assert timeline.lines(found)


def test_the_page_has_a_bar_for_each_stay() -> None:
    lines = timeline.lines(timeline.stays([record("x", "g0", 0, 4), record("y", "g0", 4, 10)]))
    assert lines[0].startswith("g0: 2 solutions in 10.0 s: solution 3.0 s (30%), reference 1.0 s (10%)")
    bars = [line[2:62] for line in lines[1:3]]
    assert bars[0].rstrip()
    assert len(bars[0].rstrip()) == len(bars[1]) - len(bars[1].lstrip()) == 24
    assert set("".join(bars)) <= set(" pcrsl.")


def prepared(begin_s: object, end_s: object, problem: str = "level1/7") -> dict[str, object]:
    unix = [1e9 + each if isinstance(each, int) else each for each in (begin_s, end_s)]
    return {"problem": problem, "begin_unix_s": unix[0], "end_unix_s": unix[1], "steps_s": {"problem": 0.5}}


def ahead(*told: object) -> Record:
    held = record("x", "g0", 5, 9)
    return replace(held, evidence={**held.evidence, "prepared_ahead": list(told)})


def test_a_problem_got_ready_before_its_solution_is_no_idle_time() -> None:
    found = timeline.stays([ahead(prepared(1, 3, "level1/1"), prepared(4, 6))])
    (share,) = timeline.shares(found)
    assert (share.solutions, share.span_s) == (1, 8.0)
    assert share.prepare_s == pytest.approx(2.0 + 1.0 + 0.5), "the second up to the solution's own time"
    assert share.idle_s == pytest.approx(1.0)
    lines = timeline.lines(found)
    assert lines[0].startswith("g0: 1 solutions in 8.0 s")
    assert lines[1].endswith("(level1/1 prepared)")
    assert lines[2].endswith("(level1/7 prepared)")
    assert lines[3].endswith("  x")


WRONG = [None, 3, "x", {"a": 1}, [None], ["x"], [prepared("y", 3)], [prepared(3, None)]]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_preparations_that_somebody_edited_are_left_out(wrong: object) -> None:
    held = record("x", "g0", 5, 9)
    found = timeline.stays([replace(held, evidence={**held.evidence, "prepared_ahead": wrong})])
    assert [stay.solution for stay in found] == ["x"]


def test_no_record_no_page() -> None:
    assert timeline.lines(timeline.stays([record("old", None)])) == []


def test_the_command_prints_a_run_and_refuses_one_without_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, slot in (("timed", "g0"), ("old", None)):
        with RunStore.create(tmp_path / name, config={}, environment={}) as store:
            store.append(record("x", slot, 0, 4))
            store.note_session({"evaluated": 1, "skipped": 0, "wall_s": 9.0})
    assert main(["timeline", str(tmp_path / "timed")]) == 0
    assert "g0: 1 solutions in 4.0 s" in capsys.readouterr().out
    assert main(["timeline", str(tmp_path / "timed"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["devices"][0]["reference_s"] == 0.5
    assert said["sessions"][0]["wall_s"] == 9.0
    assert main(["timeline", str(tmp_path / "old")]) == 2
    assert "no record has a device and a start time" in capsys.readouterr().err
