"""Runs the corpus and the broken twins on one device and writes what came out, one JSON line an entry.

    python tests/hostcuda/compare.py --device cuda --out cuda.jsonl            # needs nvcc and a GPU
    python tests/hostcuda/compare.py --device host --out host.jsonl
    python tests/hostcuda/compare.py --table host.jsonl cuda.jsonl > table.md  # both side by side
    python tests/hostcuda/compare.py --device cuda --litmus --out cuda.jsonl   # the pairs of litmus/ instead

On cuda every entry is compiled with nvcc together with driver.cpp (no torch headers), run in a process of its own, and,
if it is broken (or with --sanitize-all), run again under the tool of compute-sanitizer that its header names. On the
host device the same file goes through harness.hostcuda in checked mode.

A line holds: entry, kind (corpus or broken), device, outcome, errors, findings, tool, detail, wall_s. Outcomes: passed,
wrong_value, reported (at least one finding), silent (broken, and nothing was found), build_error, crashed, timeout.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.hostcuda import corpus_entries as entries
from tests.hostcuda.results import Finding, Result

HERE = Path(__file__).resolve().parent
SANITIZER_EXIT = 86
DRIVER_SAW_ERROR = 3
RUN_LIMIT_S = 30
SANITIZED_LIMIT_S = 150


# ---- a GPU


def _architecture() -> str:
    """`sm_90` and the like, of the first GPU; without one, what this machine's nvcc compiles for by default here."""
    smi = shutil.which("nvidia-smi")
    if smi:
        done = subprocess.run([smi, "--query-gpu=compute_cap", "--format=csv,noheader"], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip():
            return "sm_" + done.stdout.split()[0].replace(".", "")
    return "sm_90"


def build_cuda(entry: entries.Entry, folder: Path, arch: str) -> tuple[Path, str]:
    """Compiles an entry with its driver. Returns the program (absent on failure) and the compiler's output."""
    target, source = folder / entry.name, folder / f"{entry.name}.cu"
    source.write_text(entry.source)
    command = ["nvcc", "-std=c++17", "-O2", "-lineinfo", f"-arch={arch}", str(source), str(HERE / "driver.cpp"),
               "-o", str(target)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    return target, done.stdout + done.stderr


def _arguments(given: entries.Buffers, folder: Path) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    named = [(f"in_{key}.bin", tensor) for key, tensor in given.inputs.items()]
    named += [(f"out_{key}.{'new' if key in given.fresh else 'bin'}", tensor) for key, tensor in given.outputs.items()]
    for name, tensor in named:
        file = folder / name
        file.write_bytes(tensor.contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
        files.append(str(file))
    return [str(len(given.inputs)), str(len(given.outputs)), *files, "--", *map(str, given.sizes)]


def _read_back(given: entries.Buffers, arguments: Sequence[str]) -> dict[str, torch.Tensor]:
    files = arguments[2 + len(given.inputs) : 2 + len(given.inputs) + len(given.outputs)]
    outputs = {}
    for (key, like), file in zip(given.outputs.items(), files, strict=True):
        data = torch.frombuffer(bytearray(Path(file).read_bytes()), dtype=torch.uint8)
        outputs[key] = data.view(like.dtype).reshape(like.shape)
    return outputs


def sanitizer_command(tool: str, program: str, arguments: Sequence[str]) -> list[str]:
    """The command line of compute-sanitizer for one tool."""
    found = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    extra = {"memcheck": ["--leak-check", "full"], "racecheck": ["--racecheck-report", "all"]}.get(tool, [])
    options = ["--tool", tool, "--error-exitcode", str(SANITIZER_EXIT), "--print-limit", "20", *extra]
    return [found, *options, program, *arguments]


_SANITIZER_WORDS = (
    (r"Race reported|hazard", "data_race"),
    (r"Uninitialized", "uninitialised_read"),
    (r"Barrier error|Divergent thread|Invalid arguments|[Ii]nvalid mask", "barrier_error"),
    (r"Leaked \d+ bytes", "leak"),
    (r"Invalid __|misaligned|out of bounds|Address 0x", "memory_error"),
)


def parse_sanitizer(text: str, source_name: str) -> tuple[Finding, ...]:
    """Findings in compute-sanitizer's output, one a distinct status, kernel and set of lines."""
    found: dict[tuple[str, str | None, tuple[int, ...]], Finding] = {}
    told = "\n".join(line for line in text.split("\n") if "COMPUTE-SANITIZER" not in line and "SUMMARY:" not in line)
    for block in re.split(r"\n?=========[ \t]*\n", told):
        status = next((status for pattern, status in _SANITIZER_WORDS if re.search(pattern, block)), None)
        if status is None:
            continue
        kernel = re.search(r"(?:in|at) (?:void )?(\w+)(?:<.*?>)?\(", block)
        lines = tuple(sorted({int(line) for line in re.findall(re.escape(source_name) + r":(\d+)", block)}))
        name = kernel[1] if kernel else None
        finding = Finding(status=status, kernel=name, lines=lines, text=block.strip()[:600])
        found.setdefault((status, name, lines), finding)
    return tuple(found.values())


def run_cuda(entry: entries.Entry, program: Path, folder: Path, tools: Sequence[str]) -> Result:
    """Runs a compiled entry, then under each tool."""
    kind = "broken" if entry.defect else "corpus"
    given = entries.buffers(entry)
    begin = time.monotonic()
    arguments = _arguments(given, folder / "plain")
    try:
        done = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=RUN_LIMIT_S)
    except subprocess.TimeoutExpired:
        return Result(entry=entry.name, kind=kind, device="cuda", outcome="timeout", wall_s=RUN_LIMIT_S)
    errors: dict[str, float] = {}
    outcome = "crashed"
    if done.returncode == 0:
        outcome = "ran"
        if entry.defect is None:
            errors = entries.errors(entry, given, _read_back(given, arguments))
            outcome = "passed" if entries.agrees(entry, errors) else "wrong_value"
    findings: list[Finding] = []
    detail = done.stderr[-400:]
    if done.returncode == DRIVER_SAW_ERROR and entry.defect is not None:
        findings.append(Finding(status="cuda_error", kernel=None, lines=(), text=done.stderr.strip()[:600]))
    for tool in tools:
        arguments = _arguments(given, folder / tool)
        try:
            checked = subprocess.run(sanitizer_command(tool, str(program), arguments), capture_output=True, text=True,
                                     timeout=SANITIZED_LIMIT_S)  # fmt: skip
        except subprocess.TimeoutExpired:
            detail += f"\n{tool}: timeout"
            continue
        except FileNotFoundError:
            detail += f"\n{tool}: compute-sanitizer is not installed"
            continue
        text = checked.stdout + checked.stderr
        reported = checked.returncode == SANITIZER_EXIT or bool(re.search(r"SUMMARY: [1-9]", text))
        if reported:
            findings += parse_sanitizer(text, f"{entry.name}.cu") or (
                Finding(status="unparsed", kernel=None, lines=(), text=text[:600]),
            )
        elif checked.returncode != 0:
            detail += f"\n{tool}: exit {checked.returncode}: {text[-400:]}"
    if findings:
        outcome = "reported"
    elif entry.defect is not None and outcome == "ran":
        outcome = "silent"
    return Result(
        entry=entry.name,
        kind=kind,
        device="cuda",
        outcome=outcome,
        errors=_plain(errors),
        findings=tuple(findings),
        tool=",".join(tools) or None,
        detail=detail,
        wall_s=time.monotonic() - begin,
    )


def compare_cuda(chosen: Sequence[entries.Entry], jobs: int, sanitize_all: bool) -> Iterable[Result]:
    """All entries on the GPU, `jobs` compilers and half as many programs at a time."""
    arch = _architecture()
    with (
        tempfile.TemporaryDirectory() as scratch,
        ThreadPoolExecutor(jobs) as builders,
        ThreadPoolExecutor(max(1, jobs // 2)) as runners,
    ):
        root = Path(scratch)

        def built(entry: entries.Entry) -> tuple[Path, str]:
            return build_cuda(entry, root, arch)

        def finished(entry: entries.Entry) -> Result:
            program, log = builds[entry.name].result()
            if not program.exists():
                kind = "broken" if entry.defect else "corpus"
                return Result(entry=entry.name, kind=kind, device="cuda", outcome="build_error", detail=log[-2000:])
            if entry.defect is None:
                tools = ["memcheck", "racecheck", "initcheck", "synccheck"] if sanitize_all else []
            else:
                tools = [entry.defect.tool] if entry.defect.tool else []
            return run_cuda(entry, program, root / f"{entry.name}.files", tools)

        builds = {entry.name: builders.submit(built, entry) for entry in chosen}
        yield from runners.map(finished, chosen)


def _plain(errors: dict[str, float]) -> dict[str, float | str]:
    """JSON has no infinity."""
    return {key: value if value != float("inf") else "differs" for key, value in errors.items()}


# ---- the table


def table(host: Sequence[dict[str, object]], cuda: Sequence[dict[str, object]]) -> str:
    """Markdown: one row an entry, both devices side by side, and whether they agree."""

    def cell(row: dict[str, object] | None) -> str:
        if row is None:
            return "not run"
        found = {str(finding["status"]) for finding in row["findings"]}  # type: ignore[index, attr-defined]
        errors = [value for value in row["errors"].values() if isinstance(value, float)]  # type: ignore[attr-defined]
        detail = ", ".join(sorted(found)) or (f"error {max(errors):.1e}" if errors else "")
        return f"{row['outcome']}" + (f" ({detail})" if detail else "")

    theirs = {str(row["entry"]): row for row in cuda}
    lines = ["| entry | kind | host | cuda | tool | same outcome |", "|---|---|---|---|---|---|"]
    for row in host:
        other = theirs.get(str(row["entry"]))
        same = "?" if other is None else "yes" if other["outcome"] == row["outcome"] else "no"
        tool = (other or {}).get("tool") or ""
        lines.append(f"| {row['entry']} | {row['kind']} | {cell(row)} | {cell(other)} | {tool} | {same} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 where every corpus entry passed and every broken one was reported where its tool can see it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "host"))
    parser.add_argument("--out", type=Path, help="JSON lines; standard output if absent")
    parser.add_argument("--only", nargs="*", default=(), help="names of entries")
    parser.add_argument("--litmus", action="store_true", help="the pairs of litmus/, which a GPU need not report")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--sanitize-all", action="store_true", help="the unbroken ones under all four tools as well")
    parser.add_argument("--table", nargs=2, type=Path, metavar=("HOST", "CUDA"))
    options = parser.parse_args(arguments)
    if options.table:
        rows = [[json.loads(line) for line in path.read_text().splitlines()] for path in options.table]
        sys.stdout.write(table(*rows) + "\n")
        return 0
    if options.device is None:
        parser.error("--device cuda or --device host")
    every = entries.litmus() if options.litmus else [*entries.corpus(), *entries.broken()]
    chosen = [entry for entry in every if not options.only or entry.name in options.only]
    if options.device == "cuda":
        results = compare_cuda(chosen, options.jobs, options.sanitize_all)
    else:
        from tests.hostcuda import host_runner

        results = host_runner.compare_host(chosen, options.jobs)
    stream = options.out.open("w") if options.out else sys.stdout
    bad = 0
    by_name = {entry.name: entry for entry in chosen}
    for result in results:
        stream.write(json.dumps(asdict(result), allow_nan=False) + "\n")
        stream.flush()
        defect = by_name[result.entry].defect
        visible = defect is not None and (options.device == "host" or (defect.tool is not None and not options.litmus))
        good = result.outcome == "passed" if defect is None else (result.outcome == "reported" or not visible)
        bad += not good
        sys.stderr.write(f"{result.outcome:12} {result.entry}{'' if good else '   <--'}\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
