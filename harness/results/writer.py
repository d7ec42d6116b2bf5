"""Results on disk: append-only records, what a run was, its logs; resume.

    <out>/<run-id>/run.yaml         format, when it started, how many solutions, configuration, environment, authors
    <out>/<run-id>/records.jsonl    one record a line, flushed to the disk before the next solution's is written
    <out>/<run-id>/logs/            one file a solution

Imports the vocabulary, `authors` and `runs`; trusted side, and no submission can write here. Lines are never changed or
removed, except that a last line cut short by a kill is dropped when the run is resumed. Where one identity
(problem, solution, device, workload) stands in several lines, the last one counts: that is how a solution
edited between a run and its resumption gets its new verdict. One process at a time writes a run; readers need
no lock.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from harness.catalog.authors import Author, authors_in
from harness.core.atomic_file import FULL_OR_BROKEN, replace_whole
from harness.core.record import RUN_FORMAT, Record
from harness.core.status import Status
from harness.results.reader import (
    Identity,
    StoreError,
    StoreUnavailable,
    find_runs,
    is_run,
    log_name,
    read_head,
    read_records,
    timestamp,
)

SETTINGS_OF_A_RUN = ("device", "workload", "precision", "device_policy", "checked", "policy", "allow_degenerate")
"""Settings that decide verdicts: a run has one value of each, so that its records can stand in one table."""

SETTINGS_OF_RECORDS = (
    "sandbox",
    "audit",
    "baselines",
    "seeds",
    "compile_timeout_s",
    "load_timeout_s",
    "call_timeout_s",
    "solution_timeout_s",
    "timing",
    "memory_limit_bytes",
)
"""Settings of which a resumed run may have others, such as more time for what was too slow. Its new records have them,
the old ones had not: `run.yaml` says since when (`resumed_with`)."""

PART = "shard"
"""Which part of an evaluation a run is: `merge` tells by it what lacks."""

WHAT_IS_ASKED = ("paths", "problem", "author", PART)
"""Settings that say which solutions a call is about."""

MIN_FREE_BYTES = 2**20
"""With less than this free on the results' disk no verdict is written: what a solution or a compiler met may have been
the full disk, and not its own fault."""


class RunStore:
    """One run's folder. `create` and `resume` write (and hold the lock until closed); `open` only reads."""

    def __init__(
        self, folder: Path, *, lines: list[Record], notes: Sequence[str], descriptor: int | None, made: bool = False
    ) -> None:
        self.folder = folder
        self._made = made
        self.notes = tuple(notes)
        """What was odd when the folder was read, such as a last line cut short: for the user to see."""
        self._lines = lines
        self._descriptor = descriptor
        # While it is being written, records are on the disk only: a run may have very many.
        self._end = os.fstat(descriptor).st_size if descriptor is not None else 0

    @classmethod
    def create(
        cls,
        folder: Path,
        *,
        config: Mapping[str, Any],
        environment: Mapping[str, Any],
        authors: Mapping[str, Author] | None = None,
        **also: Any,
    ) -> RunStore:
        """Start a new run in `folder`, which must not hold one yet. Raises `StoreError`.

        `also` goes into `run.yaml`: `solutions`, how many the run is about; `merged_from`, what other runs were.
        What `authors` say goes there too.
        """
        if is_run(folder):
            raise StoreError(f"{folder}: holds a run already; name another, or continue the run with eval --resume")
        head = {"config": dict(config), "environment": dict(environment), **also}
        _introduce(head, authors or {})
        made, descriptor = not folder.exists(), None
        try:
            (folder / "logs").mkdir(parents=True, exist_ok=True)
            descriptor = _open_locked(folder, os.O_CREAT | os.O_EXCL)
            _write_run_yaml(folder, {"format": RUN_FORMAT, "run_id": folder.name, "started_at": timestamp(), **head})
            _sync_folder(folder)
        except OSError as error:
            if descriptor is not None:
                os.close(descriptor)
                _take_back(folder)
            if made:
                for path in (folder / "logs", folder):
                    with suppress(OSError):
                        path.rmdir()
            raise _unwritable(folder, error, "choose another folder") from error
        return cls(folder, lines=[], notes=(), descriptor=descriptor, made=made)

    @classmethod
    def resume(
        cls,
        folder: Path,
        *,
        config: Mapping[str, Any],
        asked: Collection[Identity] | None = None,
        authors: Mapping[str, Author] | None = None,
    ) -> RunStore:
        """Continue the run in `folder`. `asked` are the solutions that this call is about, which the run is then about
        as well: `solutions` in `run.yaml` counts them. What `authors` say takes the place of what they said before.

        Raises `StoreError` where there is none, where another process is writing it, or where a setting that decides
        verdicts differs from the run's.
        """
        if not is_run(folder):
            raise StoreError(f"{folder}: no run to resume; leave out --resume to start one")
        head = read_head(folder)
        began = head.get("config")
        for name in (*SETTINGS_OF_A_RUN, PART):
            if isinstance(began, dict) and name in began and name in config and began[name] != config[name]:
                raise StoreError(
                    f"{folder}: was run with {name} {_said(began[name])}, not {_said(config[name])}; "
                    f"resume it with the same, or start another run"
                )
        descriptor = None
        try:
            (folder / "logs").mkdir(exist_ok=True)
            descriptor = _open_locked(folder, os.O_CREAT)
            records, notes, good_bytes = read_records(folder)
            os.ftruncate(descriptor, good_bytes)
            if good_bytes and os.pread(descriptor, 1, good_bytes - 1) != b"\n":
                os.write(descriptor, b"\n")
            head.setdefault("format", RUN_FORMAT)
            if asked is not None:
                head["solutions"] = _solutions(head, config, {record.identity for record in records}, asked)
            _introduce(head, authors or {})
            now, others = timestamp(), other_settings(head, config)
            head["resumed_at"] = [*_entries(head, "resumed_at"), now]
            if others:
                head["resumed_with"] = [*_entries(head, "resumed_with"), {"at": now, "config": others}]
            _write_run_yaml(folder, head)
        except BaseException as error:
            if descriptor is not None:
                os.close(descriptor)  # and with it the lock: what is wrong may be mended and this called again
            if isinstance(error, OSError):
                raise _unwritable(folder, error, "mend that, then resume it") from error
            raise
        return cls(folder, lines=[], notes=notes, descriptor=descriptor)

    @classmethod
    def open(cls, folder: Path) -> RunStore:
        """Read the run in `folder`; it may still be being written. Raises `StoreError`."""
        if not folder.exists():
            raise StoreError(f"{folder}: no such folder")
        if not is_run(folder):
            raise StoreError(f"{folder}: not a run: {_lacks(folder)}")
        lines, notes, _ = read_records(folder)
        return cls(folder, lines=lines, notes=notes, descriptor=None)

    @property
    def head(self) -> dict[str, Any]:
        """What `run.yaml` holds; empty where there is none."""
        return read_head(self.folder)

    def append(self, record: Record) -> None:
        """Add one line and wait until it is on the disk, all of it or nothing.

        Raises `StoreUnavailable` (disk full, read-only, file removed), `StoreError` (opened for reading, NaN inside).
        """
        if self._descriptor is None:
            raise StoreError(f"{self.folder}: opened for reading; create or resume it to write")
        try:
            line = json.dumps(record.to_json(), allow_nan=False).encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise StoreError(f"record of {record.solution}: not JSON: {error}") from error
        if not os.fstat(self._descriptor).st_nlink:
            raise removed(self.folder)
        try:
            self._check_room(len(line))
            # An append that broke off, by an exception or an interrupt, left a part of a line.
            os.ftruncate(self._descriptor, self._end)
            done = 0
            while done < len(line):
                done += os.write(self._descriptor, line[done:])
            os.fsync(self._descriptor)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._end)
            raise StoreUnavailable(
                f"{self.folder}: can't be written: {error.strerror or error}; mend that (make room), "
                f"then --resume --run-id {self.folder.name} continues; what is finished is there"
            ) from error
        self._end += len(line)

    def _check_room(self, needed_bytes: int) -> None:
        assert self._descriptor is not None
        disk = os.fstatvfs(self._descriptor)
        if disk.f_blocks and disk.f_bavail * disk.f_frsize < MIN_FREE_BYTES + needed_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _all(self) -> list[Record]:
        return self._lines if self._descriptor is None else read_records(self.folder)[0]

    def records(self) -> list[Record]:
        """The records that count, one an identity, in the order in which each was last written."""
        newest: dict[Identity, Record] = {}
        for record in self._all():
            newest.pop(record.identity, None)
            newest[record.identity] = record
        return list(newest.values())

    def history(self) -> list[Record]:
        """Every line, oldest first, those superseded by a later one included."""
        return list(self._all())

    def note_session(self, value: Mapping[str, Any]) -> None:
        """Add to `run.yaml` what one call did: `sessions` holds one entry for each that came to its end.

        Raises `StoreUnavailable`.
        """
        head = self.head
        try:
            head["sessions"] = [*_entries(head, "sessions"), {"ended_at": timestamp(), **value}]
            _write_run_yaml(self.folder, head)
        except OSError as error:
            raise StoreUnavailable(f"{self.folder}: can't be written: {error.strerror or error}") from error

    def note_author(self, author: Author) -> None:
        """Write what an author says into `run.yaml`, if it does not stand there. Raises `StoreUnavailable`."""
        head = self.head
        if authors_in(head).get(author.name) == author:
            return
        _introduce(head, {author.name: author})
        try:
            _write_run_yaml(self.folder, head)
        except OSError as error:
            raise StoreUnavailable(f"{self.folder}: can't be written: {error.strerror or error}") from error

    def finished(self) -> dict[Identity, Record]:
        """What a resumed run need not do again. A `harness_error` is no answer and so not among these. The
        caller compares `solution_digest` and `problem_digest`: a file that changed since is evaluated
        again.
        """
        return {item.identity: item for item in self.records() if item.status is not Status.harness_error}

    def log_path(self, label: str) -> Path:
        """Where the log of the solution with this label (`Solution.label`, `Record.solution`) stands or
        belongs.
        """
        return self.folder / "logs" / log_name(label)

    def withdraw(self) -> None:
        """Leave nothing of a run that `create` made here: for one that can't begin, or can't be made whole."""
        _take_back(self.folder)
        if self._made:
            shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Give up the lock. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def whole_run(
    folder: Path, *, config: Mapping[str, Any], environment: Mapping[str, Any], **also: Any
) -> Iterator[RunStore]:
    """A new run, as `RunStore.create` makes it, that the block fills: where it raises, no part is left that could pass
    for the whole. Raises `StoreError`, for an `OSError` of the block, too.
    """
    with RunStore.create(folder, config=config, environment=environment, **also) as made:
        try:
            yield made
        except BaseException as error:
            made.withdraw()
            cause = error.__cause__ if isinstance(error, StoreUnavailable) else error
            if isinstance(cause, OSError):
                raise _unwritable(folder, cause, "nothing is kept; make room, or choose another folder") from error
            raise


def _lacks(path: Path) -> str:
    """Why there is no run at `path`, with those that may be meant."""
    if not path.is_dir():
        return f"it is a file; name the folder {path.parent}" if is_run(path.parent) else "it is a file, and no folder"
    if not (inside := find_runs(path)):
        return "it holds neither run.yaml nor records.jsonl"
    return f"it is a folder of runs; name one, such as {inside[-1]}"


def _take_back(folder: Path) -> None:
    """Remove what makes `folder` a run. For the process that made it one, and no other."""
    for name in ("run.yaml", "records.jsonl"):
        with suppress(OSError):
            (folder / name).unlink(missing_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """`replace_whole`. Raises `StoreError`, `StoreUnavailable` (the disk is full)."""
    try:
        replace_whole(path, data)
    except OSError as error:
        raise _unwritable(path, error, f"name another {'file' if path.parent.is_dir() else 'folder'}") from error


def removed(folder: Path) -> StoreUnavailable:
    """What is said where somebody took the run away that is being written."""
    return StoreUnavailable(f"{folder}: was removed while the run went on, with all that was finished; start it again")


def _unwritable(folder: Path, error: OSError, hint: str) -> StoreError:
    """A full or broken disk is the machine's fault; a folder that this user may not write is the call's."""
    kind = StoreUnavailable if error.errno in FULL_OR_BROKEN else StoreError
    return kind(f"{folder}: can't be written: {error.strerror or error}; {hint}")


def _said(setting: object) -> object:
    return "none" if setting is None else setting


def _open_locked(folder: Path, flags: int) -> int:
    path = folder / "records.jsonl"
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | flags, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StoreError(
            f"{folder}: another process is writing this run; wait for it or use another --run-id"
        ) from None
    return descriptor


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def other_settings(head: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Of `SETTINGS_OF_RECORDS` in `config` those that differ from the ones with which the run of this `run.yaml` was
    begun or resumed last. Of a group (`timing`) only what differs in it.
    """
    began = head.get("config")
    before = dict(began) if isinstance(began, dict) else {}
    for entry in _entries(head, "resumed_with"):
        if isinstance(entry, dict) and isinstance(entry.get("config"), dict):
            for name, value in entry["config"].items():
                held = before.get(name)
                before[name] = {**held, **value} if isinstance(held, dict) and isinstance(value, dict) else value
    found: dict[str, Any] = {}
    for name in SETTINGS_OF_RECORDS:
        if name not in before or name not in config or (held := before[name]) == (value := config[name]):
            continue
        if isinstance(held, dict) and isinstance(value, Mapping):
            value = {part: item for part, item in value.items() if part not in held or held[part] != item}
        found[name] = value
    return found


def _entries(head: Mapping[str, Any], name: str) -> list[Any]:
    """The list below a key of `run.yaml`; empty where something else stands there."""
    held = head.get(name)
    return list(held) if isinstance(held, list) else []


def _introduce(head: dict[str, Any], authors: Mapping[str, Author]) -> None:
    """Add to a `run.yaml` what these authors say; without any it stays as it is."""
    if authors:
        held = {**authors_in(head), **authors}
        head["authors"] = {name: held[name].to_json() for name in sorted(held)}


def _solutions(
    head: Mapping[str, Any], config: Mapping[str, Any], recorded: Collection[Identity], asked: Collection[Identity]
) -> int:
    """How many solutions a resumed run is about, as far as is known: those that have a record and those asked for now.

    Those that an earlier call asked for and never came to are known by their number alone. Where this call asks for the
    same (paths, author, shard), they are among its own, or their files are gone; else the number still holds.
    """
    known = len({*recorded, *asked})
    before, began = head.get("solutions"), head.get("config")
    if not isinstance(before, int) or not isinstance(began, dict):
        return known
    same = all(began.get(name) == config.get(name) for name in WHAT_IS_ASKED)
    return known if same else max(before, known)


def _write_run_yaml(folder: Path, value: Mapping[str, Any]) -> None:
    """Whole or not at all: a kill in the middle leaves the old file."""
    draft = folder / f".run.yaml.{os.getpid()}"
    try:
        with draft.open("w", encoding="utf-8") as stream:
            yaml.safe_dump(dict(value), stream, sort_keys=False, allow_unicode=True, width=100)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(folder / "run.yaml")
    except OSError:
        draft.unlink(missing_ok=True)
        raise
