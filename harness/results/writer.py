"""Write runs to disk: append-only records, run metadata, logs; resume.

    <out>/<run-id>/run.yaml         format, start time, number of solutions, configuration, environment, authors
    <out>/<run-id>/records.jsonl    one record per line, flushed to disk before the next ones are written
    <out>/<run-id>/logs/            one file per solution
    <out>/<run-id>/manifest.json    digests of these files, written when the run ends (`manifest.py`)

Trusted side; no solution can write here. Lines are never changed or removed, except that resuming a run drops a last
line that a kill truncated. If several lines have one identity (problem, solution, device, workload), the last one
counts. So a solution that was edited before `--resume` gets its new verdict. One process at a time writes a run;
readers need no lock.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from harness.catalog.authors import Author, authors_in
from harness.core.atomic_file import FULL_OR_BROKEN, replace_whole
from harness.core.record import RUN_FORMAT, Record
from harness.core.status import Status
from harness.results.manifest import MANIFEST, SIGNATURE, remove_manifest, write_manifest
from harness.results.reader import (
    Identity,
    RecordLines,
    StoreError,
    StoreUnavailable,
    find_runs,
    is_run,
    log_name,
    read_head,
    read_records,
    timestamp,
)

SETTINGS_OF_A_RUN = (
    "device",
    "workload",
    "precision",
    "device_policy",
    "checked",
    "syntax",
    "policy",
    "allow_degenerate",
    "rules",
    "inputs",
    "dtype",
    "gpu_memory_bytes",
    "shapes",
)
"""Settings that decide verdicts: a run has one value of each, so that its records are comparable."""

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
"""Settings that a resumed run may change, such as a longer timeout.

They apply to new records only; `resumed_with` in `run.yaml` says since when.
"""

PART = "shard"
"""Which shard of an evaluation a run is; `merge` finds missing shards by it."""

WHAT_IS_ASKED = ("paths", "problem", "author", "pattern", "status", PART)
"""Settings that select the solutions of a call."""

MIN_FREE_BYTES = 2**20
"""With less free disk space than this, no verdict is written: the full disk may have caused a solution's or compiler's
error.
"""


@dataclass(frozen=True, slots=True)
class FinishedSolution:
    """The facts of a record by which a resumed run skips its solution or not."""

    status: Status
    solution_digest: str
    problem_digest: str


class RunStore:
    """The folder of one run.

    `create` and `resume` open it for writing and hold a lock until `close`; `open` only reads.
    """

    def __init__(
        self,
        folder: Path,
        *,
        lines: list[Record],
        notes: Sequence[str],
        descriptor: int | None,
        made: bool = False,
        recorded: dict[Identity, FinishedSolution] | None = None,
    ) -> None:
        self.folder = folder
        self._made = made
        self.notes = tuple(notes)
        """Notes for the user about the folder, such as a truncated last line."""
        self._lines = lines
        self._descriptor = descriptor
        self._recorded = recorded
        # While a run is being written, records are kept on disk only: there may be very many.
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
        """Start a new run.

        Args:
            folder: The run's folder; it must not hold a run yet.
            config: Settings, for `run.yaml`.
            environment: The machine, for `run.yaml`.
            authors: Descriptions of authors, for `run.yaml`.
            **also: Other keys of `run.yaml`: `solutions`, the number of solutions; `merged_from`, the sources of a
                merge.

        Returns:
            The run, open for writing.

        Raises:
            StoreError: `folder` holds a run, or can't be written.
            StoreUnavailable: The disk is full or broken.
        """
        if is_run(folder):
            raise StoreError(f"{folder}: holds a run already; choose another folder, or continue it with eval --resume")
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
        """Continue the run in `folder`.

        Args:
            folder: The run's folder.
            config: Settings of this call.
            asked: Identities of this call's solutions; they update `solutions` in `run.yaml`. None leaves it as it is.
            authors: Descriptions of authors; they replace earlier ones.

        Returns:
            The run, open for writing.

        Raises:
            StoreError: There is no run, another process writes it, or a setting that decides verdicts differs from the
                run's.
            StoreUnavailable: The disk is full or broken.
        """
        if not is_run(folder):
            raise StoreError(f"{folder}: no run to resume; leave out --resume to start one")
        head = read_head(folder)
        began = head.get("config")
        for name in (*SETTINGS_OF_A_RUN, PART):
            if isinstance(began, dict) and name in began and name in config and began[name] != config[name]:
                raise StoreError(
                    f"{folder}: the run has {name} {_said(began[name])}, but this call has {_said(config[name])}; "
                    f"resume with the same value, or start another run"
                )
        descriptor = None
        try:
            (folder / "logs").mkdir(exist_ok=True)
            descriptor = _open_locked(folder, os.O_CREAT)
            lines = RecordLines(folder)
            recorded = _last_lines(lines)
            good_bytes = lines.good_bytes
            remove_manifest(folder)
            os.ftruncate(descriptor, good_bytes)
            if good_bytes and os.pread(descriptor, 1, good_bytes - 1) != b"\n":
                os.write(descriptor, b"\n")
            head.setdefault("format", RUN_FORMAT)
            if asked is not None:
                head["solutions"] = _solutions(head, config, recorded, asked)
            _introduce(head, authors or {})
            now, others = timestamp(), other_settings(head, config)
            head["resumed_at"] = [*_entries(head, "resumed_at"), now]
            if others:
                head["resumed_with"] = [*_entries(head, "resumed_with"), {"at": now, "config": others}]
            _write_run_yaml(folder, head)
        except BaseException as error:
            if descriptor is not None:
                os.close(descriptor)  # also releases the lock, so that a later call can succeed
            if isinstance(error, OSError):
                raise _unwritable(folder, error, "fix that, then resume the run") from error
            raise
        return cls(folder, lines=[], notes=lines.notes, descriptor=descriptor, recorded=recorded)

    @classmethod
    def open(cls, folder: Path) -> RunStore:
        """Read the run in `folder`, which another process may still write.

        Args:
            folder: The run's folder.

        Raises:
            StoreError: There is no run, or it can't be read.
        """
        if not folder.exists():
            raise StoreError(f"{folder}: no such folder")
        if not is_run(folder):
            raise StoreError(f"{folder}: not a run: {_lacks(folder)}")
        lines, notes, _ = read_records(folder)
        return cls(folder, lines=lines, notes=notes, descriptor=None)

    @property
    def head(self) -> dict[str, Any]:
        """Content of `run.yaml`; empty if there is none."""
        return read_head(self.folder)

    def append(self, *records: Record) -> None:
        """Append records and wait until all of them are on disk; on an error, none is.

        Args:
            *records: The records. Several take hardly longer than one, because the disk is waited for once.

        Raises:
            StoreUnavailable: The disk is full or read-only, or the file was removed.
            StoreError: The run is open for reading only, or a record contains NaN.
        """
        if self._descriptor is None:
            raise StoreError(f"{self.folder}: opened for reading only; use create or resume to write")
        data = b"".join(map(_line, records))
        if not os.fstat(self._descriptor).st_nlink:
            raise removed(self.folder)
        try:
            self._check_room(len(data))
            # An earlier append that failed or was interrupted may have left part of a line.
            os.ftruncate(self._descriptor, self._end)
            done = 0
            while done < len(data):
                done += os.write(self._descriptor, data[done:])
            os.fsync(self._descriptor)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._end)
            raise StoreUnavailable(
                f"{self.folder}: can't be written: {error.strerror or error}; fix that (such as free disk space), then "
                f"continue with --resume --run-id {self.folder.name}; finished records are kept"
            ) from error
        self._end += len(data)
        self._recorded = None

    def _check_room(self, needed_bytes: int) -> None:
        assert self._descriptor is not None
        disk = os.fstatvfs(self._descriptor)
        if disk.f_blocks and disk.f_bavail * disk.f_frsize < MIN_FREE_BYTES + needed_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _all(self) -> list[Record]:
        return self._lines if self._descriptor is None else read_records(self.folder)[0]

    def records(self) -> list[Record]:
        """Return the records that count, one per identity, by their last lines."""
        newest: dict[Identity, Record] = {}
        for record in self._all():
            newest.pop(record.identity, None)
            newest[record.identity] = record
        return list(newest.values())

    def history(self) -> list[Record]:
        """Return all lines, oldest first, also superseded ones."""
        return list(self._all())

    def note_session(self, value: Mapping[str, Any]) -> None:
        """Add an entry to `sessions` in `run.yaml`, for a call that has finished.

        Args:
            value: Numbers and duration of the call.

        Raises:
            StoreUnavailable: The file can't be written.
        """
        head = self.head
        try:
            head["sessions"] = [*_entries(head, "sessions"), {"ended_at": timestamp(), **value}]
            _write_run_yaml(self.folder, head)
        except OSError as error:
            raise StoreUnavailable(f"{self.folder}: can't be written: {error.strerror or error}") from error

    def note_author(self, author: Author) -> None:
        """Write an author's description into `run.yaml` unless it is there already.

        Args:
            author: The description.

        Raises:
            StoreUnavailable: The file can't be written.
        """
        head = self.head
        if authors_in(head).get(author.name) == author:
            return
        _introduce(head, {author.name: author})
        try:
            _write_run_yaml(self.folder, head)
        except OSError as error:
            raise StoreUnavailable(f"{self.folder}: can't be written: {error.strerror or error}") from error

    @property
    def end(self) -> int:
        """Where the next record begins in `records.jsonl`, in bytes."""
        return self._end

    def finished(self) -> dict[Identity, FinishedSolution]:
        """Return the solutions that a resumed run need not evaluate again, by identity.

        Those with a `harness_error` are not among them. The caller compares `solution_digest` and `problem_digest`,
        since a changed file has to be evaluated again.
        """
        recorded, self._recorded = self._recorded, None  # as `resume` has just read them
        if recorded is None:
            recorded = _last_lines(self._lines if self._descriptor is None else RecordLines(self.folder))
        return {identity: item for identity, item in recorded.items() if item.status is not Status.harness_error}

    def log_path(self, label: str) -> Path:
        """Return the path of the log of a solution, by its label (`Solution.label`)."""
        return self.folder / "logs" / log_name(label)

    def withdraw(self) -> None:
        """Remove the run that `create` made, if it can't start or can't be completed."""
        _take_back(self.folder)
        if self._made:
            shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Write the manifest and release the lock. Idempotent."""
        if self._descriptor is not None:
            with suppress(OSError):  # `harness verify` says that there is no manifest
                if is_run(self.folder):
                    write_manifest(self.folder)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _line(record: Record) -> bytes:
    try:
        return json.dumps(record.to_json(), allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise StoreError(f"record of {record.solution}: not JSON: {error}") from error


def _last_lines(records: Iterable[Record]) -> dict[Identity, FinishedSolution]:
    """Return the facts of the last record of each identity."""
    found: dict[Identity, FinishedSolution] = {}
    for record in records:
        problem, solution, device, workload = record.identity
        # Most records share these texts: a copy of each would be most of the memory.
        identity = (sys.intern(problem), solution, sys.intern(device), sys.intern(workload))
        found[identity] = FinishedSolution(record.status, record.solution_digest, sys.intern(record.problem_digest))
    return found


@contextmanager
def whole_run(
    folder: Path, *, config: Mapping[str, Any], environment: Mapping[str, Any], **also: Any
) -> Iterator[RunStore]:
    """Create a run that the block fills; if the block raises, remove all of it.

    Args:
        folder: The run's folder; it must not hold a run yet.
        config: Settings, for `run.yaml`.
        environment: The machine, for `run.yaml`.
        **also: Other keys of `run.yaml`.

    Yields:
        The run, open for writing.

    Raises:
        StoreError: The folder can't be written; also replaces an `OSError` of the block.
    """
    with RunStore.create(folder, config=config, environment=environment, **also) as made:
        try:
            yield made
        except BaseException as error:
            made.withdraw()
            cause = error.__cause__ if isinstance(error, StoreUnavailable) else error
            if isinstance(cause, OSError):
                raise _unwritable(
                    folder, cause, "nothing is kept; free disk space, or choose another folder"
                ) from error
            raise


def _lacks(path: Path) -> str:
    """Say why there is no run at `path`, and name runs that may be meant."""
    if not path.is_dir():
        return f"it is a file; pass its folder {path.parent}" if is_run(path.parent) else "it is a file, not a folder"
    if not (inside := find_runs(path)):
        return "it contains neither run.yaml nor records.jsonl"
    return f"it is a folder of runs; pass one of them, such as {inside[-1]}"


def _take_back(folder: Path) -> None:
    """Remove the files that make `folder` a run.

    Only the process that created them may call this.
    """
    for name in ("run.yaml", "records.jsonl", MANIFEST, SIGNATURE):
        with suppress(OSError):
            (folder / name).unlink(missing_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file completely or not at all.

    Args:
        path: The file.
        data: Its content.

    Raises:
        StoreError: The file can't be written.
        StoreUnavailable: The disk is full or broken.
    """
    try:
        replace_whole(path, data)
    except OSError as error:
        raise _unwritable(path, error, f"choose another {'file' if path.parent.is_dir() else 'folder'}") from error


def removed(folder: Path) -> StoreUnavailable:
    """Return the error for a run that was removed while it was being written."""
    return StoreUnavailable(f"{folder}: was removed during the run, with all finished records; start the run again")


def _unwritable(folder: Path, error: OSError, hint: str) -> StoreError:
    """Return `StoreUnavailable` for a full or broken disk, else `StoreError`."""
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
            f"{folder}: another process is writing this run; wait for it, or pass another --run-id"
        ) from None
    return descriptor


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def other_settings(head: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return those `SETTINGS_OF_RECORDS` that differ from the run's latest ones.

    Args:
        head: Content of `run.yaml`: the settings of the start and of each resume.
        config: Settings of this call.

    Returns:
        The differing settings with this call's values; of a group (`timing`) only the differing parts.
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
    """Return the list at a key of `run.yaml`; empty if the value is no list."""
    held = head.get(name)
    return list(held) if isinstance(held, list) else []


def _introduce(head: dict[str, Any], authors: Mapping[str, Author]) -> None:
    """Add authors' descriptions to the content of `run.yaml`."""
    if authors:
        held = {**authors_in(head), **authors}
        head["authors"] = {name: held[name].to_json() for name in sorted(held)}


def _solutions(
    head: Mapping[str, Any], config: Mapping[str, Any], recorded: Collection[Identity], asked: Collection[Identity]
) -> int:
    """Return the known number of a resumed run's solutions.

    Known are recorded ones and those of this call. Solutions that an earlier call requested and never reached are known
    by their number only. If this call makes the same selection (paths, author, shard), it includes them, or their files
    are gone. Else the earlier number still holds.
    """
    known = len({*recorded, *asked})
    before, began = head.get("solutions"), head.get("config")
    if not isinstance(before, int) or not isinstance(began, dict):
        return known
    same = all(began.get(name) == config.get(name) for name in WHAT_IS_ASKED)
    return known if same else max(before, known)


def _write_run_yaml(folder: Path, value: Mapping[str, Any]) -> None:
    """Replace `run.yaml` atomically: a kill leaves the old file."""
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
