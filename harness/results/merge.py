"""Making one run of several: parts of one evaluation (`--shard`), or runs whose newer records stand for the older.

Edge, above `store`; trusted side. The sources are left as they are. What would stand in one table without being alike
is refused; what a reader of the merged run would miss (parts that are not there, runs cut off) is told.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.catalog.authors import authors_of_runs
from harness.core.record import Record
from harness.core.status import Status
from harness.results.latest import finished, recency
from harness.results.reader import Identity, StoreError
from harness.results.writer import SETTINGS_OF_A_RUN, RunStore, whole_run

KEPT_APART = ("device", "workload")
"""Settings that are in a record's identity: where they differ, no record takes another's place."""

NAMED_PARTS = 8
"""Parts that lack are named up to so many."""

_PART = re.compile(r"([1-9]\d*)/([1-9]\d*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeReport:
    """What `merge` did: `records` written, `superseded` left out because another of the same identity counts.

    `notes` say what was odd: lines cut short, and what seems to lack.
    """

    records: int
    superseded: int
    notes: tuple[str, ...]


def merge(runs: Sequence[Path], into: Path) -> MergeReport:
    """Make one new run `into` of several. Where two hold the same identity, the one that finished later counts; a later
    `harness_error` on the same files is no answer, and does not take a verdict's place. A record that finished at a
    time still to come, or at none, takes nobody's place: when it finished is its own word.

    Logs come along, and what authors say of themselves: of two runs that differ, what the later one does. Raises
    `StoreError`, too where runs were judged by different rules.
    """
    opened = [RunStore.open(item) for item in runs]
    if not opened:
        raise StoreError("nothing to merge: name at least one run")
    notes = [f"{store.folder}: {note}" for store in opened for note in store.notes]
    notes += _different(opened)
    chosen: dict[Identity, tuple[Record, RunStore]] = {}
    total = 0
    for store in opened:
        records = store.records()
        total += len(records)
        notes += _cut_off(store, records)
        notes += _undated(store, records)
        for record in records:
            held = chosen.get(record.identity)
            if held is None or _counts_more(record, held[0]):
                chosen[record.identity] = (record, store)
    notes += _absent_parts(opened)
    sources = [{"run_id": item.folder.name, **item.head} for item in opened]
    authors = authors_of_runs(sources)
    for source in sources:
        source.pop("authors", None)
    same = {name: _shared(item.get(name) for item in sources) for name in ("config", "environment")}
    about = {"authors": authors, "merged_from": sources}
    with whole_run(into, config=same["config"], environment=same["environment"], **about) as merged:
        for record, store in sorted(chosen.values(), key=lambda item: (recency(item[0]), item[0].identity)):
            if (log := _log(store, record)) is not None:
                merged.log_path(record.solution).write_bytes(log)
            merged.append(record)
    return MergeReport(records=len(chosen), superseded=total - len(chosen), notes=tuple(notes))


def _log(store: RunStore, record: Record) -> bytes | None:
    path = store.log_path(record.solution)
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise StoreError(f"{path}: can't be read: {error.strerror or error}; mend that, or remove it") from error


def _counts_more(record: Record, held: Record) -> bool:
    """Whether `record` takes the place of `held`, which has the same identity."""
    later = recency(record) >= recency(held)
    of_the_same = (record.solution_digest, record.problem_digest) == (held.solution_digest, held.problem_digest)
    failed, held_failed = record.status is Status.harness_error, held.status is Status.harness_error
    return held_failed if of_the_same and failed != held_failed else later


def _undated(store: RunStore, records: Sequence[Record]) -> list[str]:
    odd = [record.solution for record in records if record.finished_at and finished(record) is None]
    if not odd:
        return []
    return [
        f"{store.folder}: {len(odd)} records finished at a time that is none, or is still to come ({odd[0]}): no other "
        f"record of the same solution gives way to them"
    ]


def _config(store: RunStore) -> dict[str, Any]:
    held = store.head.get("config")
    return held if isinstance(held, dict) else {}


def _different(opened: Sequence[RunStore]) -> list[str]:
    """What these runs have different devices and workloads of, in words. Raises `StoreError` where other settings
    differ that decide verdicts.
    """
    notes = []
    for name in SETTINGS_OF_A_RUN:
        stated = [(store.folder, _config(store)[name]) for store in opened if name in _config(store)]
        other = next(((folder, value) for folder, value in stated if value != stated[0][1]), None)
        if other is None:
            continue
        told = f"{stated[0][0]} has {name} {stated[0][1]}, {other[0]} {other[1]}"
        if name not in KEPT_APART:
            raise StoreError(
                f"judged by different rules, so their records can't stand in one run: {told}; leaderboard, report and "
                f"compare take several runs as they are"
            )
        notes.append(f"{told}: their records stand apart")
    return notes


def _cut_off(store: RunStore, records: Sequence[Record]) -> list[str]:
    """In words, that a run did not judge all that it was asked to."""
    asked, run_id = store.head.get("solutions"), store.folder.name
    notes = []
    if isinstance(asked, int) and len(records) < asked:
        notes.append(
            f"{store.folder}: {len(records)} of its {asked} solutions have a record; the call that began it does the "
            f"rest with --resume --run-id {run_id}"
        )
    if unjudged := sum(item.status is Status.harness_error for item in records):
        notes.append(f"{store.folder}: {unjudged} could not be judged (harness_error); --resume tries again")
    return notes


def _absent_parts(opened: Sequence[RunStore]) -> list[str]:
    """In words, which parts of an evaluation in parts (`--shard`) are not there."""
    parts: dict[int, set[int]] = {}
    for store in opened:
        found = _PART.fullmatch(str(_config(store).get("shard")))
        if found is not None:
            parts.setdefault(int(found[2]), set()).add(int(found[1]))
    notes = []
    for count, there in sorted(parts.items()):
        # The count is whatever a file says: the numbers that lack are looked for, but not all of them made.
        lack = count - len({number for number in there if number <= count})
        if lack > 0:
            first = list(itertools.islice((n for n in range(1, count + 1) if n not in there), NAMED_PARTS))
            named = ", ".join(f"{number}/{count}" for number in first) + (", …" if lack > NAMED_PARTS else "")
            notes.append(f"{lack} of {count} parts are not among these runs: --shard {named}")
    return notes


def _shared(values: Iterable[Any]) -> dict[str, Any]:
    """The entries that all these mappings agree on."""
    first, *rest = [item if isinstance(item, dict) else {} for item in values]
    return {name: value for name, value in first.items() if all(name in o and o[name] == value for o in rest)}
