"""The cache of built modules: whole or absent, verified, shared by processes, bounded."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from harness.core.choices import DeviceKind
from harness.core.config import CACHE_LIMIT_BYTES, Machine, resolve
from harness.toolchain import BuildCache, CacheError, default_root


def key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def module(folder: Path, text: str = "module") -> Path:
    path = folder / "built.so"
    path.write_text(text)
    return path


@pytest.fixture
def cache(tmp_path: Path) -> BuildCache:
    return BuildCache(tmp_path / "cache")


def test_what_was_put_is_got(cache: BuildCache, tmp_path: Path) -> None:
    assert cache.get(key("a")) is None
    cache.put(key("a"), module(tmp_path), {"headers": {"main.cpp": "lean"}})
    held = cache.get(key("a"))
    assert held is not None
    assert held.path is not None
    assert held.path.read_text() == "module"
    assert held.metadata == {"headers": {"main.cpp": "lean"}}
    held.release()
    held.release()


def test_notes_without_a_module(cache: BuildCache) -> None:
    cache.put(key("n"), None, {"specs": []})
    assert cache.recall(key("n")) == {"specs": []}
    assert cache.recall(key("other")) is None


def test_a_second_put_changes_nothing(cache: BuildCache, tmp_path: Path) -> None:
    cache.put(key("a"), module(tmp_path, "first"), {})
    cache.put(key("a"), module(tmp_path, "second"), {})
    held = cache.get(key("a"))
    assert held is not None
    assert held.path is not None
    assert held.path.read_text() == "first"


@pytest.mark.parametrize("damage", ["changed", "cut", "gone", "no_json", "other_json", "list", "other_key"])
def test_a_damaged_entry_is_a_miss_and_goes_even_in_use(cache: BuildCache, tmp_path: Path, damage: str) -> None:
    cache.put(key("a"), module(tmp_path), {})
    held = cache.get(key("a"))
    assert held is not None
    assert held.path is not None
    entry = held.path.parent / "entry.json"
    match damage:
        case "changed":
            held.path.write_text("Module")
        case "cut":
            held.path.write_text("mod")
        case "gone":
            held.path.unlink()
        case "no_json":
            entry.write_text("{")
        case "other_json":
            entry.write_text("{}")
        case "list":
            entry.write_text("[]")
        case "other_key":
            entry.write_text(json.dumps(json.loads(entry.read_text()) | {"key": key("b")}))
    assert cache.get(key("a")) is None
    assert not held.path.parent.exists()
    cache.put(key("a"), module(tmp_path), {})
    assert cache.get(key("a")) is not None


def test_an_entry_that_can_not_be_replaced_is_said(cache: BuildCache, tmp_path: Path) -> None:
    place = cache.root / "entries" / key("a")[:2] / key("a")
    place.parent.mkdir()
    place.write_text("no folder")
    with pytest.raises(CacheError, match="can't replace the damaged entry"):
        cache.put(key("a"), module(tmp_path), {})


def test_links_devices_and_folders_are_no_modules(cache: BuildCache, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for name, make in (
        ("link", lambda path: path.symlink_to(secret)),
        ("fifo", lambda path: os.mkfifo(path)),
        ("folder", lambda path: path.mkdir()),
        ("absent", lambda path: None),
    ):
        path = tmp_path / name
        make(path)
        with pytest.raises(ValueError, match="module"):
            cache.put(key(name), path, {})
        assert cache.get(key(name)) is None
    assert list((cache.root / "drafts").iterdir()) == []


def test_a_key_can_not_leave_the_cache(cache: BuildCache) -> None:
    for bad in ("../../etc", "A" * 64, "", key("a") + "/.."):
        with pytest.raises(ValueError, match="SHA-256"):
            cache.get(bad)


def test_oldest_use_goes_first(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "cache", max_bytes=10_000)
    for index, name in enumerate("abc"):
        cache.put(key(name), module(tmp_path, name * 2_500), {})
        entry = cache.root / "entries" / key(name)[:2] / key(name) / "entry.json"
        os.utime(entry, (index, index))
    used = cache.get(key("a"))
    assert used is not None
    used.release()
    cache.put(key("d"), module(tmp_path, "d" * 2_500), {})
    held = {name for name in "abcd" if (entry := cache.get(key(name))) is not None and not entry.release()}
    assert held == {"a", "c", "d"}
    assert cache.size_bytes() <= 10_000


def test_an_entry_in_use_is_not_evicted(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "cache", max_bytes=1_000)
    cache.put(key("a"), module(tmp_path, "a" * 900), {})
    used = cache.get(key("a"))
    assert used is not None
    assert used.path is not None
    cache.put(key("b"), module(tmp_path, "b" * 900), {})
    assert used.path.read_text() == "a" * 900
    used.release()
    cache.put(key("c"), module(tmp_path, "c" * 900), {})
    assert not used.path.exists()


def test_a_folder_that_can_not_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="can't be created"):
        BuildCache(tmp_path / "file" / "cache")


HOLD = """
import sys, time
from pathlib import Path
from harness.toolchain import BuildCache
cache = BuildCache(Path(sys.argv[1]))
with cache.building(sys.argv[2]):
    print("building", flush=True)
    sys.stdin.read()
    {last}
"""


def holder(cache: BuildCache, name: str, last: str = "") -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(last=last), str(cache.root), key(name)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "building\n"
    return process


def finish(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.wait()
    process.stdout.close()


def test_one_process_builds_a_key_at_a_time(cache: BuildCache) -> None:
    process = holder(cache, "a")
    had = threading.Event()

    def wait() -> None:
        with cache.building(key("a")):
            had.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    with cache.building(key("b")):  # another key is free
        assert not had.wait(0.3)
    finish(process)
    assert had.wait(60)
    waiting.join()
    assert list((cache.root / "locks").iterdir()) == []


def test_a_builder_that_dies_sets_its_key_free(cache: BuildCache) -> None:
    process = holder(cache, "a")
    process.kill()
    finish(process)
    with cache.building(key("a")):
        pass


def test_threads_exclude_each_other(cache: BuildCache) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(20):
            with cache.building(key("a")):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.0005)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert len(most) == 80


STRESS = """
import hashlib, random, sys
from pathlib import Path
from harness.toolchain import BuildCache
cache = BuildCache(Path(sys.argv[1]), max_bytes=20_000)
source = Path(sys.argv[2])
source.write_text("m" * 3_000)
random.seed(int(sys.argv[3]))
for _ in range(150):
    key = hashlib.sha256(str(random.randrange(12)).encode()).hexdigest()
    with cache.building(key):
        held = cache.get(key)
        if held is None:
            cache.put(key, source, {})
            held = cache.get(key)
    if held is not None:
        assert held.path.read_text() == "m" * 3_000
        held.release()
"""


def test_processes_that_put_get_and_evict_at_once(cache: BuildCache, tmp_path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", STRESS, str(cache.root), str(tmp_path / f"{n}.so"), str(n)])
        for n in range(3)
    ]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert list((cache.root / "drafts").iterdir()) == []


def test_what_killed_runs_left_is_swept_once_nobody_uses_the_cache(tmp_path: Path) -> None:
    user = BuildCache(tmp_path / "shared")
    draft = user.scratch()
    os.utime(draft, (0, 0))  # old by the clock, which may jump
    other = BuildCache(tmp_path / "shared")
    assert draft.exists(), "its owner still uses the cache"
    del user, other
    BuildCache(tmp_path / "shared")
    assert not draft.exists()


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "given"))
    assert default_root() == tmp_path / "given"
    machine = Machine(device=DeviceKind.HOST, cpu_count=1, memory_bytes=2**33)
    for options, folder, limit_bytes in (
        ({}, tmp_path / "given", CACHE_LIMIT_BYTES),
        ({"cache_dir": tmp_path / "own", "cache_limit_bytes": "3GiB"}, tmp_path / "own", 3 * 2**30),
    ):
        settled = resolve(machine=machine, run_id="r", options={"paths": ["x"], **options})
        assert (settled.cache_dir, settled.cache_limit_bytes) == (folder, limit_bytes)
    monkeypatch.delenv("HARNESS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_root() == tmp_path / "xdg" / "kernel-harness"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert default_root().is_absolute()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_root() == tmp_path / ".cache" / "kernel-harness"
