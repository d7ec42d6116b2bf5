"""Many records as one Parquet file: seconds, records a second, and the most memory that the processes held.

`python -m tests.benchmarks.bench_parquet --records 1000000 --page results/records-as-data.md`

The run is made of a committed run's lines, each with a name of its own: as many bytes a record as a real run has.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from harness.results.columns import write_parquet
from tests.support.paths import ROOT

SOURCE = ROOT / "results" / "h200-examples" / "records.jsonl"


def make_run(folder: Path, records: int) -> int:
    """Write a run of so many records; return its bytes."""
    templates = []
    for line in SOURCE.read_text(encoding="utf-8").splitlines():
        value = json.loads(line)
        name = value["solution"]
        before, after = json.dumps(value | {"solution": "\0"}).split(json.dumps("\0")[1:-1], 1)
        templates.append((before, name, after))
    with (folder / "records.jsonl").open("w", encoding="utf-8") as file:
        for number in range(records):
            before, name, after = templates[number % len(templates)]
            file.write(f"{before}{number}/{name}{after}\n")
    return (folder / "records.jsonl").stat().st_size


class Memory:
    """The most memory of this process and its children, in bytes, by samples of /proc (proportional set size)."""

    def __init__(self) -> None:
        self.most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            self.most = max(self.most, sum(map(proportional, family(os.getpid()))))


def family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(each for child in children for each in family(int(child)))]


def proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    rows = []
    for records in (options.records // 10, options.records):
        with tempfile.TemporaryDirectory() as scratch:
            size = make_run(Path(scratch), records)
            out = Path(scratch, "records.parquet")
            with Memory() as memory:
                begun = time.perf_counter()
                written, notes = write_parquet(Path(scratch), out)
                took_s = time.perf_counter() - begun
            if (written, notes) != (records, []):
                raise SystemExit(f"{written} of {records} rows, {notes}")
            figures = (f"{size / 1e9:.2f}", f"{took_s:.1f}", f"{records / took_s:,.0f}", f"{memory.most / 1e6:,.0f}")
            row = f"| {records:,} | {' | '.join(figures)} | {out.stat().st_size / 1e6:.0f} |"
            rows.append(row)
            print(row, flush=True)
    if options.page:
        options.page.write_text(
            PAGE.format(
                date=datetime.now(UTC).date(),
                processors=len(os.sched_getaffinity(0)),
                rows="\n".join(rows),
                python=platform.python_version(),
                records=options.records,
            )
        )


PAGE = """# Records as data: a run as one Parquet file

`python -m tests.benchmarks.bench_parquet --records {records} --page results/records-as-data.md`, {date},
{processors} processors, Python {python}. The lines are those of `h200-examples`, each with a name of its own.
Memory is the sum of the proportional set sizes of all processes, sampled twice a second.

| records | GB of records.jsonl | s | records a second | most memory, MB | MB of Parquet |
|---:|---:|---:|---:|---:|---:|
{rows}
"""


if __name__ == "__main__":
    main()
