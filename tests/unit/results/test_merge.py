"""One run of several: which record counts, what is refused, and what a reader would miss is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.status import Status
from harness.results.merge import merge
from harness.results.reader import StoreError, is_run
from harness.results.writer import RunStore
from tests.unit.results.test_writer import create, record

EARLY, LATE = "2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"


def statuses(run: Path) -> dict[str, Status]:
    return {item.solution: item.status for item in RunStore.open(run).records()}


def test_merge_takes_the_later_record_and_brings_logs(tmp_path: Path) -> None:
    with create(tmp_path / "one", device="host", jobs=1) as store:
        store.append(record("0.py", reason="early", finished_at=EARLY))
        store.append(record("1.py", reason="late", finished_at=LATE))
        store.log_path("1.py").write_text("log of one")
    with create(tmp_path / "two", device="host", jobs=2) as store:
        store.append(record("0.py", reason="late", finished_at=LATE))
        store.append(record("1.py", reason="early", finished_at=EARLY))
        store.log_path("1.py").write_text("log of two")
    report = merge([tmp_path / "one", tmp_path / "two"], tmp_path / "both")
    assert (report.records, report.superseded) == (2, 2)
    merged = RunStore.open(tmp_path / "both")
    assert {item.reason for item in merged.records()} == {"late"}
    assert merged.log_path("1.py").read_text() == "log of one"
    assert merged.head["config"] == {"device": "host"}
    assert [item["run_id"] for item in merged.head["merged_from"]] == ["one", "two"]
    with pytest.raises(StoreError, match="holds a run already"):
        merge([tmp_path / "one"], tmp_path / "both")
    with pytest.raises(StoreError, match="nothing to merge"):
        merge([], tmp_path / "none")


@pytest.mark.parametrize("when", ["2999-01-01T00:00:00+00:00", "tomorrow", "9999", "0001-01-01T00:00:00+14:00"])
def test_a_record_from_the_future_takes_nobodys_place(tmp_path: Path, when: str) -> None:
    with create(tmp_path / "one") as store:
        store.append(record("0.py", reason="as it was", finished_at=EARLY))
    with create(tmp_path / "two") as store:
        store.append(record("0.py", reason="made up", finished_at=when))
    for runs in ((tmp_path / "one", tmp_path / "two"), (tmp_path / "two", tmp_path / "one")):
        into = tmp_path / runs[0].name / "merged"
        report = merge(runs, into)
        assert [item.reason for item in RunStore.open(into).records()] == ["as it was"]
        odd = [note for note in report.notes if "future finish time (such as 0.py)" in note]
        assert len(odd) == (0 if when.startswith("0001") else 1)


def test_a_later_time_is_later_whatever_its_zone(tmp_path: Path) -> None:
    with create(tmp_path / "one") as store:
        store.append(record("0.py", reason="later", finished_at="2026-01-01T23:00:00-02:00"))
    with create(tmp_path / "two") as store:
        store.append(record("0.py", reason="earlier", finished_at="2026-01-02T00:30:00+00:00"))
    merge([tmp_path / "one", tmp_path / "two"], tmp_path / "both")
    assert [item.reason for item in RunStore.open(tmp_path / "both").records()] == ["later"]


def test_a_later_fault_of_the_harness_takes_no_verdicts_place(tmp_path: Path) -> None:
    fault = {"status": Status.harness_error, "reason": "the node was lost", "finished_at": LATE}
    with create(tmp_path / "one") as store:
        store.append(record("same.py", finished_at=EARLY))
        store.append(record("edited.py", finished_at=EARLY))
    with create(tmp_path / "two") as store:
        store.append(record("same.py", **fault))
        store.append(record("edited.py", **fault, solution_digest="s2"))
    for number, order in enumerate((["one", "two"], ["two", "one"])):
        into = tmp_path / f"both-{number}"
        report = merge([tmp_path / name for name in order], into)
        # What was judged is another file than what could not be: that says nothing about this one.
        assert statuses(into) == {"same.py": Status.wrong_value, "edited.py": Status.harness_error}
        assert report.notes == (f"{tmp_path / 'two'}: 2 without a verdict (harness_error); --resume tries again",)


def test_runs_judged_by_different_rules_are_not_put_together(tmp_path: Path) -> None:
    for name, precision in (("one", None), ("two", None), ("three", "bf16")):
        with create(tmp_path / name, precision=precision, device="host") as store:
            store.append(record(f"{name}.py"))
    merge([tmp_path / "one", tmp_path / "two"], tmp_path / "like")
    with pytest.raises(StoreError, match=r"one has precision None, .*three has bf16; leaderboard"):
        merge([tmp_path / name for name in ("one", "two", "three")], tmp_path / "all")
    assert not is_run(tmp_path / "all")


def test_another_device_is_told_and_its_records_stand_apart(tmp_path: Path) -> None:
    for name, device in (("one", "cuda"), ("two", "host")):
        with create(tmp_path / name, device=device) as store:
            store.append(record(device=device))
    report = merge([tmp_path / "one", tmp_path / "two"], tmp_path / "all")
    assert report.records == 2
    (note,) = report.notes
    assert "one has device cuda" in note
    assert note.endswith("two has host: their records stay separate")


def test_what_lacks_of_a_run_in_parts_is_told(tmp_path: Path) -> None:
    for name, shard, asked in (("p1", "1/4", 1), ("p3", "3/4", 2), ("whole", None, 1)):
        with RunStore.create(tmp_path / name, config={"shard": shard}, environment={}, solutions=asked) as store:
            store.append(record(f"{name}.py"))
    report = merge([tmp_path / "p1", tmp_path / "p3"], tmp_path / "two-parts")
    assert report.notes == (
        f"{tmp_path / 'p3'}: only 1 of 2 solutions have a record; run the original command with --resume "
        "--run-id p3 for the rest",
        "2 of 4 shards are missing: --shard 2/4, 4/4",
    )
    with RunStore.resume(tmp_path / "p3", config={"shard": "3/4"}, asked=[record("p3.py").identity]):
        pass  # the same call again, and the other file is gone
    assert merge([tmp_path / "p3", tmp_path / "whole"], tmp_path / "other").notes == (
        "3 of 4 shards are missing: --shard 1/4, 2/4, 4/4",
    )
    assert merge([tmp_path / "whole"], tmp_path / "alone").notes == ()


def test_a_number_of_parts_that_somebody_made_up_takes_no_time(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "p", config={"shard": f"2/{10**30}"}, environment={}, solutions=1) as store:
        store.append(record("p.py"))
    (note,) = merge([tmp_path / "p"], tmp_path / "all").notes
    assert note.startswith(f"{10**30 - 1} of {10**30} shards are missing: --shard 1/{10**30}, 3/")
    assert note.endswith(", …")
