"""How often honest bursts are doubted, from records: `python -m tests.benchmarks.bench_doubts RUN...`.

Prints a Markdown table, a row for each run, whose solutions should all be honest: evaluations that were timed, those of
which the referee's clock did not explain at least one burst's claims (`harness.referee.timing.claims`, rules 3 and 5),
those that were charged for it (label `unexplained_time`), and by how many milliseconds an evaluation's worst burst
took longer than one of trusted code.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

from harness.core.record import Record
from harness.referee.timing.speedup import UNEXPLAINED
from harness.results.writer import RunStore

HEAD = (
    "| run | evaluations | with a doubted burst | charged | worst burst, ms longer, median | most |\n"
    + "|---" * 6
    + "|"
)


def row(name: str, records: Sequence[Record]) -> str | None:
    """One run's row; None where nothing in it was timed by bursts whose claims were held against a clock."""
    held = [(record, record.timing["claims"]) for record in records if record.timing and "claims" in record.timing]
    # Impossible claims have no time that is left unexplained.
    longer_ms = [claims["worst"]["unexplained_s"] * 1e3 for _, claims in held if "unexplained_s" in claims["worst"]]
    if not longer_ms:
        return None
    doubted = sum(claims["accepted"] < claims["bursts"] for _, claims in held)
    charged = sum(UNEXPLAINED in record.labels for record, _ in held)
    return (
        f"| {name} | {len(held)} | {doubted} | {charged} | {statistics.median(longer_ms):.2f} | {max(longer_ms):.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs: results/RUN")
    print(HEAD)
    for folder in parser.parse_args().runs:
        print(row(folder.name, RunStore.open(folder).records()) or f"| {folder.name} | 0 | | | | |")


if __name__ == "__main__":
    main()
