"""Import other projects' problems, lint them on the host device, and write a page of those that can't be used.

    python -m tests.benchmarks.bench_foreign_problems --flashinfer ../flashinfer-trace --gpumode ../reference-kernels \\
        --kernelbench ../KernelBench/KernelBench --out results/foreign-problems.md

`--kernelbench` takes KernelBench's folder of levels: its Parquet table is made from it, and imported. `--work` keeps
the imported files and results; a run that was stopped continues there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.catalog import load_problems

HEAD = """# Problems of other projects

Made by `python -m tests.benchmarks.bench_foreign_problems {options}` on {cpus} processors without a GPU, torch {torch},
{date}. Each set is imported, small sizes are derived or declared by the import, and `harness problems lint` checks each
problem at them on the host device. {about}

**{usable} of {found} problems load, get small sizes and are checked by lint; {clean} of these break no rule.**

| set | problems | imported | load, with small sizes, and checked | no rule broken |
|---|---:|---:|---:|---:|
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flashinfer", type=Path, action="append", default=[])
    parser.add_argument("--gpumode", type=Path, action="append", default=[])
    parser.add_argument("--kernelbench", type=Path, action="append", default=[])
    parser.add_argument("--work", type=Path, default=None)
    parser.add_argument("--budget", default="100000", help="Seconds for each set.")
    parser.add_argument("--about", default="", help="Where the sets come from, for the page.")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    work = arguments.work or Path(tempfile.mkdtemp(prefix="foreign-"))
    rows, sections, totals, options = [], [], [0, 0, 0], []
    for kind in ("kernelbench", "flashinfer", "gpumode"):
        for number, path in enumerate(getattr(arguments, kind), 1):
            options.append(f"--{kind} {path.name}")
            title = f"{kind} ({path.name})"
            row, text = one_set(kind, path, work / f"{kind}{number}", title, arguments.budget)
            rows.append(f"| {title} | " + " | ".join(map(str, row)) + " |")
            sections.append(text)
            totals = [total + row[place] for total, place in zip(totals, (0, 2, 3), strict=True)]
            print(rows[-1], flush=True)
    import torch

    head = HEAD.format(
        options=" ".join(options), cpus=os.cpu_count(), torch=torch.__version__, date=f"{datetime.now(UTC):%d %B %Y}",
        found=totals[0], usable=totals[1], clean=totals[2], about=arguments.about,
    )  # fmt: skip
    if arguments.out is not None:
        arguments.out.write_text(head + "\n".join(rows) + "\n" + "".join(sections))


def one_set(kind: str, path: Path, folder: Path, title: str, budget: str) -> tuple[list[int], str]:
    """Import and lint one set; return its counts and its part of the page."""
    imported, ledger, found = folder / "imported", folder / "lint.jsonl", folder / "import.json"
    if not found.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [kind]
        if kind == "kernelbench":
            command, table = ["kernelbench-parquet"], folder / "table"
            harness("export", "kernelbench-parquet", "--problems", str(path), "--out", str(table))
            path = table
        found.write_text(harness("import", *command, str(path), "--out", str(imported), "--json"))
    done = json.loads(found.read_text())
    lint = ["--problems", str(imported / "problems"), "--device", "host", "--resume", "--budget", budget]
    harness("problems", "lint", *lint, "--out", str(ledger))
    names = {number: key for key, number in done["problems"].items()}
    now = {problem.digest for problem in load_problems(imported / "problems").known.values()}
    reports = {
        report["problem"]: report
        for report in map(json.loads, ledger.read_text().splitlines())
        if report["digest"] in now
    }
    unused: dict[str, list[str]] = defaultdict(list)
    for key, reason in done["skipped"].items():
        if not key.startswith(("solution ", "traces ")) and not key.endswith((".py", ".jsonl")):
            unused[f"import: {short(reason)}"].append(key.removeprefix("definition "))
    skipped = sum(map(len, unused.values()))
    broken: dict[str, list[str]] = defaultdict(list)
    usable = clean = 0
    for number, key in names.items():
        rules = {rule["rule"]: rule for rule in (reports.get(number) or {"checks": []})["checks"]}
        wrong = [name for name, rule in rules.items() if rule["verdict"] == "broken"]
        if not rules:
            unused["not checked: the time was up"].append(key)
        elif "loads" in wrong:
            unused[short(rules["loads"]["details"][0])].append(key)
        else:
            usable += 1
            clean += not wrong
            for name in wrong:
                broken[name].append(key)
    counts = [len(names) + skipped, len(names), usable, clean]
    return counts, section(title, "Not usable", unused) + section(title, "Rules of lint that are broken", broken)


def harness(*words: str) -> str:
    """Run a command of the harness; exit codes of findings are accepted."""
    done = subprocess.run([sys.executable, "-m", "harness", *words], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"harness {' '.join(words)} failed with code {done.returncode}")
    return done.stdout


def short(reason: str) -> str:
    """Return a reason without what differs from problem to problem."""
    reason = re.sub(r"no small sizes can be derived: |; (declare|fix) .*", "", reason)
    reason = re.sub(r"^input \w+ ", "an input ", re.sub(r"takes [\w, ]+, which", "takes an argument which", reason))
    return re.sub(r"\b\d+ MiB", "many MiB", reason).partition(": declare a small")[0][:160].replace("|", "\\|")


def section(title: str, what: str, groups: dict[str, list[Any]]) -> str:
    if not groups:
        return ""
    rows = [
        f"| {reason} | {len(keys)} | {', '.join(sorted(keys))} |"
        for reason, keys in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]
    return f"\n## {what}: {title}\n\n| reason | problems | which |\n|---|---:|---|\n" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
