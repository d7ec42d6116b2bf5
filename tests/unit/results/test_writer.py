"""Results on disk: what survives a kill, what a resumption skips, and what damaged files are told."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.core.status import Status
from harness.results.reader import DamagedRecord, StoreError, StoreUnavailable
from harness.results.writer import RunStore, write_whole
from tests.support.paths import ROOT


def record(solution: str = "a/level1/16_x.py", **changes: Any) -> Record:
    base: dict[str, Any] = {
        "problem": "level1/16",
        "author": "a",
        "solution": solution,
        "device": DeviceKind.HOST,
        "workload": "small",
        "status": Status.wrong_value,
        "reason": "off by one",
        "solution_digest": "s1",
        "problem_digest": "p1",
        "finished_at": "2026-01-01T00:00:00+00:00",
    }
    return Record(**{**base, **changes})


def create(folder: Path, **config: Any) -> RunStore:
    return RunStore.create(folder, config=config, environment={"cpu": "x"})


def test_records_come_back_as_written(tmp_path: Path) -> None:
    first = record(evidence={"where": [1, 2], "text": "µ\u2028\ud800 \x1b[31m"}, labels=("static_buffer",))
    second = record("b.py", status=Status.passed, reason="passed", speedup=1.5, timing={"median_s": 1e-3})
    with create(tmp_path / "r") as store:
        store.append(first)
        store.append(second)
    again = RunStore.open(tmp_path / "r")
    assert again.records() == [first, second]
    assert again.notes == ()
    assert again.head["environment"] == {"cpu": "x"}
    assert again.head["format"] == 1


def test_a_run_that_is_removed_takes_no_more_records(tmp_path: Path) -> None:
    with create(tmp_path / "r") as store:
        store.append(record())
        shutil.rmtree(tmp_path / "r")
        with pytest.raises(StoreUnavailable, match="was removed during the run"):
            store.append(record("b.py"))


def test_each_record_is_there_before_the_next(tmp_path: Path) -> None:
    with create(tmp_path / "r") as store:
        store.append(record())
        assert len(RunStore.open(tmp_path / "r").records()) == 1


def test_a_killed_writer_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from harness.results.writer import RunStore
sys.path.insert(0, "tests")
from tests.unit.results.test_writer import record
store = RunStore.create(Path(sys.argv[1]), config={}, environment={})
for number in range(3):
    store.append(record(f"{number}.py"))
print("ready", flush=True)
time.sleep(600)
"""
    root = ROOT
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "r")], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == "ready\n"
        with pytest.raises(StoreError, match="another process is writing this run"):
            RunStore.resume(tmp_path / "r", config={})
        child.send_signal(signal.SIGKILL)
        child.wait()
    with RunStore.resume(tmp_path / "r", config={}) as store:
        assert [item.solution for item in store.records()] == ["0.py", "1.py", "2.py"]


@pytest.mark.parametrize("cut", [1, 20, -1])
def test_a_torn_last_line_is_reported_left_out_and_repaired(tmp_path: Path, cut: int) -> None:
    folder = tmp_path / "r"
    with create(folder) as store:
        store.append(record("0.py"))
        kept = (folder / "records.jsonl").stat().st_size
        store.append(record("1.py"))
    data = (folder / "records.jsonl").read_bytes()
    end = kept + cut if cut > 0 else len(data) - 2  # -2: the newline and the closing brace
    (folder / "records.jsonl").write_bytes(data[:end])

    reader = RunStore.open(folder)
    assert [item.solution for item in reader.records()] == ["0.py"]
    assert "cut short" in reader.notes[0]
    assert (folder / "records.jsonl").read_bytes() == data[:end], "a reader changes nothing"

    with RunStore.resume(folder, config={}) as store:
        assert "cut short" in store.notes[0]
        store.append(record("2.py"))
    assert [item.solution for item in RunStore.open(folder).records()] == ["0.py", "2.py"]
    assert RunStore.open(folder).notes == ()


def test_a_last_line_that_lacks_only_its_newline_counts(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    with create(folder) as store:
        store.append(record("0.py"))
    data = (folder / "records.jsonl").read_bytes()
    (folder / "records.jsonl").write_bytes(data[:-1])
    with RunStore.resume(folder, config={}) as store:
        store.append(record("1.py"))
    assert [item.solution for item in RunStore.open(folder).records()] == ["0.py", "1.py"]


@given(cut=st.integers(min_value=0, max_value=700))
def test_any_prefix_of_the_file_can_be_resumed(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("cut") / "r"
    with create(folder) as store:
        for number in range(3):
            store.append(record(f"{number}.py"))
    data = (folder / "records.jsonl").read_bytes()
    (folder / "records.jsonl").write_bytes(data[:cut])
    with RunStore.resume(folder, config={}) as store:
        whole = len(store.records())
        assert data[:cut].count(b"\n") <= whole <= data[:cut].count(b"\n") + 1
        store.append(record("new.py"))
    assert len(RunStore.open(folder).records()) == whole + 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{not json", ":1: not JSON"),
        (b'{"format": 99}', ":1: record format 99; this harness reads 1 to 1: update the harness"),
        (b'{"format": 0}', ":1: record format 0; this harness reads 1 to 1; the line is skipped; fix or remove it"),
        (b"[]", ":1: a record must be a JSON object"),
        (b'{"format": 1, "surprise": 1}', "not a record: unknown keys surprise"),
        (b'{"format": NaN}', "NaN is not JSON"),
        (b'{"format": 1, "wall_s": 1e999}', ":1: not JSON: 1e999 is out of range"),
        (b'{"format": 1, "wall_s": 1' + b"0" * 400 + b"}", ":1: not JSON: 1000000"),
        (b"[" * 100_000, ":1: not JSON"),
        (b"\xff\x00\x01", ":1: byte 0 is not UTF-8"),
        (b"{\x00}\x00\xfe", ":1: byte 4 is not UTF-8"),
        ('{"format": 1}'.encode("utf-16-le"), ":1: not JSON"),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_a_damaged_line_is_named_and_skipped_and_is_kept(tmp_path: Path, line: bytes, said: str, last: bool) -> None:
    folder = tmp_path / "r"
    with create(folder) as store:
        store.append(record())
    path = folder / "records.jsonl"
    good = path.read_bytes()
    path.write_bytes(good + line + b"\n" if last else line + b"\n" + good)
    for read in (RunStore.open, lambda folder: RunStore.resume(folder, config={})):
        if "update the harness" in said:  # a newer harness wrote it: this one would rank an incomplete run
            with pytest.raises(StoreError) as refused:
                read(folder)
            told = [str(refused.value)]
        else:
            with pytest.warns(DamagedRecord) as caught, read(folder) as store:
                assert [item.solution for item in store.records()] == [record().solution]
            told = list({str(item.message) for item in caught})
        (text,) = told
        assert said.replace(":1:", ":2:" if last else ":1:") in text
        assert "\n" not in text
    assert line in path.read_bytes(), "what stood there is the user's to mend"


def test_empty_lines_are_passed_over(tmp_path: Path) -> None:
    with create(tmp_path / "r") as store:
        store.append(record("0.py"))
    path = tmp_path / "r" / "records.jsonl"
    path.write_bytes(b"\r\n" + path.read_bytes() + b"\n")
    with RunStore.resume(tmp_path / "r", config={}) as store:
        store.append(record("1.py"))
    assert [item.solution for item in RunStore.open(tmp_path / "r").records()] == ["0.py", "1.py"]


def test_a_run_of_a_newer_format_resumes_in_the_same_process_once_it_is_mended(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    with create(folder) as store:
        store.append(record())
    path = folder / "records.jsonl"
    whole = path.read_bytes()
    path.write_bytes(b'{"format": 99}\n' + whole)
    with pytest.raises(StoreError, match="update the harness"):
        RunStore.resume(folder, config={})
    path.write_bytes(whole)
    with RunStore.resume(folder, config={}) as again:
        assert again.records() == [record()]


def test_a_run_whose_yaml_was_edited_into_other_kinds_resumes(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    create(folder).close()
    (folder / "run.yaml").write_text("format: 1\nsessions: 5\nresumed_at: {a: 1}\nconfig: 3\n")
    with RunStore.resume(folder, config={}) as store:
        store.note_session({"wall_s": 1.0})
    head = RunStore.open(folder).head
    assert len(head["sessions"]) == len(head["resumed_at"]) == 1


FULL = """
import errno, os, sys
from pathlib import Path
from harness.results.reader import StoreUnavailable
from harness.results.merge import merge
from harness.results.writer import RunStore, write_whole

where = Path(sys.argv[1])
(where / "page.html").write_text("before")
os.chdir(where)
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    write_whole(Path("page.html"), b"x" * 5000)
except Exception as error:
    print(type(error).__name__, error)
try:
    merge([Path("a"), Path("b")], Path("all"))
except Exception as error:
    print(type(error).__name__, error)
"""


def test_what_does_not_fit_leaves_what_was_there_and_no_part(tmp_path: Path) -> None:
    """Files of at most 2,000 bytes stand for a full disk."""
    for name in ("a", "b"):
        with create(tmp_path / name) as store:
            for number in range(3):
                store.append(record(f"{name}{number}.py"))
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stderr == ""
    page, merged = done.stdout.splitlines()
    assert page == "StoreUnavailable page.html: can't be written: File too large; choose another file"
    assert merged.startswith("StoreUnavailable all: can't be written: File too large; nothing is kept")
    assert (tmp_path / "page.html").read_text() == "before"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a", "b", "page.html"]
    assert len(RunStore.open(tmp_path / "a").records()) == 3


def test_a_run_that_can_not_be_begun_leaves_the_folder_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "deep" / "r"
    monkeypatch.setattr("harness.results.writer._sync_folder", lambda _: os.stat("/proc/no/such/place"))
    with pytest.raises(StoreError, match="choose another folder"):
        create(folder)
    assert not folder.exists()
    monkeypatch.undo()
    create(folder).close()


def test_a_pipe_is_written_to_as_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", str(tmp_path / "pipe")], stdout=subprocess.PIPE) as reader:
        write_whole(tmp_path / "pipe", b"through")
        assert reader.communicate(timeout=300)[0] == b"through"
    (tmp_path / "real.html").write_text("old")
    (tmp_path / "link.html").symlink_to("real.html")
    write_whole(tmp_path / "link.html", b"new")
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "real.html").read_text() == "new"


def test_who_may_read_a_file_stays_as_it_was(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("old")
    page.chmod(0o640)
    write_whole(page, b"new")
    assert (page.read_text(), stat.S_IMODE(page.stat().st_mode)) == ("new", 0o640)
    page.chmod(0o600)
    write_whole(page, b"newer")
    assert (page.read_text(), stat.S_IMODE(page.stat().st_mode)) == ("newer", 0o600)


def test_the_newest_line_of_an_identity_counts_and_history_keeps_all(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    with create(folder) as store:
        store.append(record("0.py", reason="old", solution_digest="s1"))
        store.append(record("1.py"))
        store.append(record("0.py", reason="new", solution_digest="s2"))
    again = RunStore.open(folder)
    assert [(item.solution, item.reason) for item in again.records()] == [("1.py", "off by one"), ("0.py", "new")]
    assert len(again.history()) == 3
    assert again.finished()[record("0.py").identity].solution_digest == "s2"


def test_a_harness_error_is_not_finished(tmp_path: Path) -> None:
    with create(tmp_path / "r") as store:
        store.append(record("0.py", status=Status.harness_error, reason="the GPU is gone"))
        store.append(record("1.py"))
        assert list(store.finished()) == [record("1.py").identity]


def test_a_run_is_not_started_twice_nor_resumed_where_there_is_none(tmp_path: Path) -> None:
    create(tmp_path / "r").close()
    with pytest.raises(StoreError, match="or continue it with eval --resume"):
        create(tmp_path / "r")
    with pytest.raises(StoreError, match="no run to resume"):
        RunStore.resume(tmp_path / "other", config={})
    with pytest.raises(
        StoreError, match=f"not a run: it is a folder of runs; pass one of them, such as {tmp_path / 'r'}"
    ):
        RunStore.open(tmp_path)
    with pytest.raises(StoreError, match=f"not a run: it is a file; pass its folder {tmp_path / 'r'}"):
        RunStore.open(tmp_path / "r" / "records.jsonl")
    with pytest.raises(StoreError, match="no such folder"):
        RunStore.open(tmp_path / "gone")


def test_a_resumption_must_judge_as_the_run_did(tmp_path: Path) -> None:
    create(tmp_path / "r", device="host", workload="small", allow_degenerate=False, jobs=1).close()
    with pytest.raises(StoreError, match="the run has workload small, but this call has full"):
        RunStore.resume(tmp_path / "r", config={"device": "host", "workload": "full", "jobs": 8})
    with pytest.raises(StoreError, match="the run has allow_degenerate False, but this call has True"):
        RunStore.resume(tmp_path / "r", config={"device": "host", "allow_degenerate": True})
    create(tmp_path / "part", device="host", shard="1/2").close()
    with pytest.raises(StoreError, match="the run has shard 1/2, but this call has none"):
        RunStore.resume(tmp_path / "part", config={"device": "host", "shard": None})
    RunStore.resume(tmp_path / "part", config={"device": "host", "shard": "1/2"}).close()
    with RunStore.resume(tmp_path / "r", config={"device": "host", "workload": "small", "jobs": 8}) as store:
        assert len(store.head["resumed_at"]) == 1


def test_a_resumption_with_other_limits_is_written_down(tmp_path: Path) -> None:
    """Each is held against the one before it, and what makes no difference to a record is not told."""
    began = {"device": "host", "timing": {"min_samples": 30, "budget_s": 3.0}, "call_timeout_s": 60.0, "jobs": 1}
    create(tmp_path / "r", **began).close()

    def resumed(**changes: Any) -> list[Any]:
        with RunStore.resume(tmp_path / "r", config={**began, **changes}) as store:
            return [entry["config"] for entry in store.head.get("resumed_with", [])]

    assert resumed(jobs=8) == []
    longer = {"timing": {"budget_s": 9.0}, "call_timeout_s": 90.0}
    both = {"timing": {"min_samples": 30, "budget_s": 9.0}, "call_timeout_s": 90.0}
    assert resumed(**both) == [longer]
    assert resumed(**both) == [longer]
    assert resumed() == [longer, {"timing": {"budget_s": 3.0}, "call_timeout_s": 60.0}]
    head = RunStore.open(tmp_path / "r").head
    assert [entry["at"] for entry in head["resumed_with"]] == [head["resumed_at"][1], head["resumed_at"][3]]
    assert head["config"] == began


def test_a_line_that_is_no_record_says_what_it_lacks(tmp_path: Path) -> None:
    create(tmp_path / "r").close()
    (tmp_path / "r" / "records.jsonl").write_text('{"format": 1, "problem": "level1/1", "reason": "x"}\n')
    with pytest.warns(DamagedRecord, match=r":1: not a record: missing `author`, `device`, `solution`, `status`, "):
        RunStore.open(tmp_path / "r")


def test_a_resumed_run_counts_the_solutions_of_all_its_calls(tmp_path: Path) -> None:
    """Ten asked for and four judged; then others, some, and the same again after two files were removed."""
    ten = [record(f"{number}.py") for number in range(10)]
    begun = {"paths": ["solutions"], "author": None}
    with RunStore.create(tmp_path / "r", config=begun, environment={}, solutions=10) as store:
        for item in ten[:4]:
            store.append(item)

    def counted(asked: list[Record], **config: Any) -> int:
        with RunStore.resume(
            tmp_path / "r", config={**begun, **config}, asked=[item.identity for item in asked]
        ) as store:
            return int(store.head["solutions"])

    assert counted(ten[4:6], paths=["solutions/a"]) == 10, "fewer than the run is about"
    new = [record(f"new-{number}.py") for number in range(8)]
    assert counted(new, paths=["more"]) == 12, "the four that are judged and those"
    assert counted([*ten, *new]) == 18
    assert counted(ten[2:]) == 10, "two whose files are gone have their records"
    assert counted(ten[4:]) == 10
    assert counted(ten[:8]) == 8, "of the same call two files are gone, and no record is of them"


def test_a_reader_can_not_append(tmp_path: Path) -> None:
    create(tmp_path / "r").close()
    with pytest.raises(StoreError, match="opened for reading"):
        RunStore.open(tmp_path / "r").append(record())


def test_nan_never_reaches_the_file(tmp_path: Path) -> None:
    with create(tmp_path / "r") as store:
        with pytest.raises(StoreError, match="not JSON"):
            store.append(record(evidence={"error": float("nan")}))
        store.append(record("1.py"))
    assert [item.solution for item in RunStore.open(tmp_path / "r").records()] == ["1.py"]


def test_a_folder_that_can_not_be_made_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="choose another folder"):
        create(tmp_path / "file" / "r")


def test_lines_are_plain_json(tmp_path: Path) -> None:
    with create(tmp_path / "r") as store:
        store.append(record())
    (line,) = (tmp_path / "r" / "records.jsonl").read_text().splitlines()
    value = json.loads(line)
    assert value["format"] == 1
    assert value["speedup"] is None


def test_a_record_and_the_run_s_folder_are_synced_before_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, int]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), os.fstat(descriptor).st_size))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with create(tmp_path / "r") as store:
        assert str(tmp_path / "r") in [path for path, _ in synced], "the new files' names"
        for number in range(2):
            store.append(record(f"{number}.py"))
            lines = tmp_path / "r" / "records.jsonl"
            assert synced[-1] == (str(lines), lines.stat().st_size), "the whole line, not before it is written"


def test_part_of_a_line_that_an_append_left_is_cut_off_by_the_next(tmp_path: Path) -> None:
    with create(tmp_path / "r") as store:
        store.append(record("0.py"))
        with (tmp_path / "r" / "records.jsonl").open("ab") as file:
            file.write(b'{"format": 1, "solu')
        store.append(record("1.py"))
    again = RunStore.open(tmp_path / "r")
    assert [item.solution for item in again.records()] == ["0.py", "1.py"]
    assert again.notes == ()


@pytest.mark.parametrize(("free_bytes", "fits"), [(2**20 + 2**16, True), (2**20, False)])
def test_no_verdict_is_written_onto_a_nearly_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_bytes: int, fits: bool
) -> None:
    with create(tmp_path / "r") as store:
        store.append(record("0.py"))
        real = os.fstatvfs(0)
        values = list(real)
        values[:5] = [4096, 1, 10**6, free_bytes, free_bytes]
        monkeypatch.setattr(os, "fstatvfs", lambda _: os.statvfs_result(values))
        if fits:
            store.append(record("1.py"))
        else:
            with pytest.raises(StoreUnavailable, match="No space left"):
                store.append(record("1.py"))
        monkeypatch.undo()
        assert len(store.records()) == 1 + fits


def test_a_withdrawn_run_leaves_a_folder_that_was_there_before(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("kept")
    with create(tmp_path / "mine") as store:
        store.withdraw()
    assert (tmp_path / "mine" / "notes.txt").read_text() == "kept"
    assert not (tmp_path / "mine" / "run.yaml").exists()
    with create(tmp_path / "new") as store:
        store.withdraw()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("version", [0, -1, 2, "1", None])
def test_another_format_of_a_run_is_refused(tmp_path: Path, version: object) -> None:
    with create(tmp_path / "r") as store:
        store.append(record())
    path = tmp_path / "r" / "run.yaml"
    path.write_text(path.read_text().replace("format: 1\n", f"format: {json.dumps(version)}\n"))
    with pytest.raises(StoreError, match="format"):
        RunStore.open(tmp_path / "r").head  # noqa: B018


@pytest.mark.parametrize("version", [0, -1, 2, "1", None, 1.5])
def test_another_format_of_a_record_is_refused_or_skipped(tmp_path: Path, version: object) -> None:
    with create(tmp_path / "r") as store:
        store.append(record("0.py"))
        store.append(record("1.py"))
    path = tmp_path / "r" / "records.jsonl"
    first, second = path.read_text().splitlines()
    path.write_text(json.dumps(json.loads(first) | {"format": version}) + "\n" + second + "\n")
    if version == 2:
        with pytest.raises(StoreError, match="format"):
            RunStore.open(tmp_path / "r")
        return
    with pytest.warns(DamagedRecord, match="format"):
        assert [item.solution for item in RunStore.open(tmp_path / "r").records()] == ["1.py"]
