"""What the defences of evaluations cost, from the records of a run: `python -m tests.benchmarks.bench_defences RUN`.

Prints a Markdown table: seconds by defence and solution, and their total as a share of the evaluation without them. The
first solution of each problem pays for the calibration, as in the run.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="a run's folder: results/RUN")
    folder = parser.parse_args().run
    rows = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    held = [row["evidence"] for row in rows if "defences_s" in row["evidence"]]
    if not held:
        raise SystemExit(f"{folder}: no record says what its defences took")
    names = sorted({name for evidence in held for name in evidence["defences_s"]})
    total_s = sum(evidence["stages_s"]["total"] for evidence in held)
    by_name = {name: sum(evidence["defences_s"].get(name, 0.0) for evidence in held) for name in names}
    spent_s = sum(by_name.values())
    count, rest_s = len(held), total_s - spent_s
    print(f"{count} evaluations, {total_s / count:.2f} s each, of which {spent_s / count:.2f} s are defences:")
    print(f"{spent_s / rest_s:.1%} on top of what an evaluation takes without them.\n")
    print("| defence | s an evaluation | on top |\n|---|---|---|")
    for name in sorted(names, key=lambda name: -by_name[name]):
        print(f"| {name.replace('_', ' ')} | {by_name[name] / count:.3f} | {by_name[name] / rest_s:.1%} |")


if __name__ == "__main__":
    main()
