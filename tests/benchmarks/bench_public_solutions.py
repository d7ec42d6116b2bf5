"""Judge public solutions whose authors published that they are correct, and count how the verdicts agree.

    git clone https://github.com/deepreinforce-ai/CUDA-L1
    python -m tests.benchmarks.bench_public_solutions CUDA-L1/optimized_cuda_code/*.json --work FOLDER --out PAGE.md

Each file has one JSON object a line: `level_id`, `task_id`, `ref_code` (the problem), `custom_code` (the solution) and
`score_default` (its published speedup). Equal sources are judged once. Again with the same FOLDER it continues, and
writes the page anew. Nothing of these files is kept in this repository: the page has identifiers, verdicts and figures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.record import Record
from harness.core.status import VERDICT_FREE, Status
from harness.results.scoring import scored
from harness.results.writer import RunStore

RUN = "public"

PAGE = """# Public solutions with published verdicts

Made by `python -m tests.benchmarks.bench_public_solutions` from {files} on {device}. {published} solutions to
{problems} problems were published as correct, with a speedup; {distinct} of their sources differ, and {judged} were
judged here, with default settings (`--rules strict`) at the workload {workload}.

* {passed} pass.
* {rules} are right by `--rules kernelbench`: their outputs are right on the problem's own inputs.
* {allclose} are within KernelBench's own tolerance of the reference (`kernelbench_would_pass`).

| verdict here | sources | of these right by `--rules kernelbench` | within KernelBench's tolerance | example |
|---|---:|---:|---:|---|
{rows}
"""


@dataclass
class Published:
    """The solutions of all files. `sources` are by author, level, number and source's number."""

    count: int = 0
    problems: dict[tuple[int, int], str] = field(default_factory=dict)
    sources: dict[tuple[int, int, str], str] = field(default_factory=dict)

    def take(self, author: str, lines: Iterable[str]) -> None:
        """Add one file's solutions; `author` gets those that no earlier file has."""
        for line in lines:
            entry = json.loads(line)
            if not entry["custom_code"] or entry["score_default"] is None:
                continue
            number = (entry["level_id"], entry["task_id"])
            self.count += 1
            self.problems.setdefault(number, entry["ref_code"])
            self.sources.setdefault((*number, entry["custom_code"]), author)

    def write(self, folder: Path) -> None:
        """Write problems and solutions as files that `harness eval` reads."""
        for (level, number), source in self.problems.items():
            _write(folder / "problems" / f"level{level}" / f"{number}_public.py", source)
        numbers = Counter[tuple[str, int, int]]()
        for (level, number, source), author in self.sources.items():
            numbers[author, level, number] += 1
            name = f"{number}_public_{numbers[author, level, number]}.py"
            _write(folder / "solutions" / author / f"level{level}" / name, source)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--work", type=Path, required=True, help="Folder for the files, the run and its records.")
    parser.add_argument("--out", type=Path, help="Page to write.")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--page-only", action="store_true", help="Judge nothing: write the page of what was judged.")
    arguments = parser.parse_args()
    published = Published()
    for path in arguments.files:
        published.take(path.stem, path.read_text(encoding="utf-8").splitlines())
    published.write(arguments.work)
    if not arguments.page_only:
        _evaluate(arguments.work, arguments.device)
    records = RunStore.open(arguments.work / "results" / RUN).records()
    page = _page(published, records, [path.name for path in arguments.files])
    print(page)
    if arguments.out is not None:
        arguments.out.write_text(page, encoding="utf-8")


def _evaluate(work: Path, device: str) -> None:
    places = ["--problems", str(work / "problems"), "--out", str(work / "results"), "--run-id", RUN]
    resume = ["--resume"] if (work / "results" / RUN).exists() else []
    command = [sys.executable, "-m", "harness", "eval", str(work / "solutions"), *places, "--device", device]
    subprocess.run([*command, "--allow-degenerate", "--audit", "auto", *resume], check=False)


def _page(published: Published, records: list[Record], files: list[str]) -> str:
    by_status: dict[Status, list[Record]] = {}
    for record in records:
        by_status.setdefault(record.status, []).append(record)
    rows = []
    for status, those in sorted(by_status.items(), key=lambda item: -len(item[1])):
        example = those[0]
        shown = "" if status is Status.passed else f"{example.problem} {example.author}: {example.reason}"
        counts = (len(those), sum(map(_by_rules, those)), sum(map(_within_allclose, those)))
        rows.append(f"| `{status.value}` | {' | '.join(map(str, counts))} | {_cell(shown)} |")
    judged = [record for record in records if record.status not in VERDICT_FREE]
    workloads = sorted({record.workload for record in records})
    device = f"{os.cpu_count()} processors without a GPU" if records[0].device.value == "host" else "one GPU"
    return PAGE.format(
        files=", ".join(f"`{name}`" for name in files),
        device=device,
        published=published.count,
        problems=len(published.problems),
        distinct=len(published.sources),
        judged=len(judged),
        workload=", ".join(f"`{name}`" for name in workloads),
        passed=sum(record.status is Status.passed for record in records),
        rules=sum(map(_by_rules, records)),
        allclose=sum(map(_within_allclose, records)),
        rows="\n".join(rows),
    )


def _by_rules(record: Record) -> bool:
    return scored(record).kernelbench_rules is True


def _within_allclose(record: Record) -> bool:
    return record.evidence.get("kernelbench_would_pass") is True


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _write(path: Path, source: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")


if __name__ == "__main__":
    main()
