"""Merge several runs into one.

Trusted side. The runs may be shards of one evaluation, or have newer records of the same solutions. They stay
unchanged. Runs that were evaluated by different rules are refused; missing shards and incomplete runs are reported.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.catalog.authors import authors_of_runs
from harness.core.record import Record
from harness.core.status import Status
from harness.results.evidence import mapping
from harness.results.latest import finished, recency
from harness.results.reader import Identity, StoreError
from harness.results.writer import SETTINGS_OF_A_RUN, RunStore, whole_run

KEPT_APART = ("device", "workload")
"""Settings that are part of a record's identity: if they differ, no record displaces another."""

NAMED_PARTS = 8
"""Most missing shards that a note lists."""

_PART = re.compile(r"([1-9]\d*)/([1-9]\d*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeReport:
    """Result of `merge`.

    Attributes:
        records: Number of records written.
        superseded: Number of records left out because another record of the same identity counts.
        notes: Anything odd: truncated lines, missing shards, incomplete runs.
    """

    records: int
    superseded: int
    notes: tuple[str, ...]


def merge(runs: Sequence[Path], into: Path) -> MergeReport:
    """Create the new run `into` from several runs.

    If two records have the same identity, the one that finished later counts. A later `harness_error` on the same files
    does not displace a verdict, nor does a record with a future or missing finish time. Logs and authors' descriptions
    are copied; if two runs describe an author differently, the later run counts.

    Raises:
        StoreError: A run can't be read, `into` can't be written, or the runs were evaluated by different rules.
    """
    opened = [RunStore.open(item) for item in runs]
    if not opened:
        raise StoreError("nothing to merge; name at least one run")
    notes = [f"{store.folder}: {note}" for store in opened for note in store.notes]
    notes += _different(opened)
    chosen: dict[Identity, tuple[Record, RunStore]] = {}
    total = 0
    for store in opened:
        records = store.records()
        total += len(records)
        notes += [*_cut_off(store, records), *_undated(store, records)]
        for record in records:
            if record.identity not in chosen or _counts_more(record, chosen[record.identity][0]):
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
        raise StoreError(f"{path}: can't be read: {error.strerror or error}; fix or remove the file") from error


def _counts_more(record: Record, held: Record) -> bool:
    """Return whether `record` displaces `held`, which has the same identity."""
    later = recency(record) >= recency(held)
    of_the_same = (record.solution_digest, record.problem_digest) == (held.solution_digest, held.problem_digest)
    failed, held_failed = record.status is Status.harness_error, held.status is Status.harness_error
    return held_failed if of_the_same and failed != held_failed else later


def _undated(store: RunStore, records: Sequence[Record]) -> list[str]:
    odd = [record.solution for record in records if record.finished_at and finished(record) is None]
    if not odd:
        return []
    return [
        f"{store.folder}: {len(odd)} records have an invalid or future finish time (such as {odd[0]}); they do not "
        f"displace other records of the same solution"
    ]


def _different(opened: Sequence[RunStore]) -> list[str]:
    """Return notes on devices and workloads that differ.

    Raises `StoreError` if other settings differ that decide verdicts.
    """
    notes = []
    for name in SETTINGS_OF_A_RUN:
        configs = ((store.folder, mapping(store.head, "config")) for store in opened)
        stated = [(folder, config[name]) for folder, config in configs if name in config]
        other = next(((folder, value) for folder, value in stated if value != stated[0][1]), None)
        if other is None:
            continue
        told = f"{stated[0][0]} has {name} {stated[0][1]}, {other[0]} has {other[1]}"
        if name not in KEPT_APART:
            raise StoreError(
                f"evaluated by different rules, so these runs can't be merged: {told}; leaderboard, report and compare "
                f"accept several separate runs"
            )
        notes.append(f"{told}: their records stay separate")
    return notes


def _cut_off(store: RunStore, records: Sequence[Record]) -> list[str]:
    """Return notes on solutions of a run that have no verdict."""
    asked, run_id = store.head.get("solutions"), store.folder.name
    notes = []
    if isinstance(asked, int) and len(records) < asked:
        notes.append(
            f"{store.folder}: only {len(records)} of {asked} solutions have a record; run the original command with "
            f"--resume --run-id {run_id} for the rest"
        )
    if unjudged := sum(item.status is Status.harness_error for item in records):
        notes.append(f"{store.folder}: {unjudged} without a verdict (harness_error); --resume tries again")
    return notes


def _absent_parts(opened: Sequence[RunStore]) -> list[str]:
    """Return notes on missing shards (`--shard`)."""
    parts: dict[int, set[int]] = defaultdict(set)
    for store in opened:
        found = _PART.fullmatch(str(mapping(store.head, "config").get("shard")))
        if found is not None:
            parts[int(found[2])].add(int(found[1]))
    notes = []
    for count, there in sorted(parts.items()):
        # The count is untrusted and may be huge: search missing numbers lazily.
        lack = count - len({number for number in there if number <= count})
        if lack > 0:
            first = list(itertools.islice((n for n in range(1, count + 1) if n not in there), NAMED_PARTS))
            named = ", ".join(f"{number}/{count}" for number in first) + (", …" if lack > NAMED_PARTS else "")
            notes.append(f"{lack} of {count} shards are missing: --shard {named}")
    return notes


def _shared(values: Iterable[Any]) -> dict[str, Any]:
    """Return the entries that all these mappings agree on."""
    first, *rest = [item if isinstance(item, dict) else {} for item in values]
    return {name: value for name, value in first.items() if all(name in o and o[name] == value for o in rest)}
