"""Seconds to open CUDA contexts and to lose them: alone, six at once, on several GPUs, by what limits their queues.

    python -m tests.benchmarks.bench_contexts --out results/contexts-h200.md
    python -m tests.benchmarks.bench_contexts --only racecheck

Needs a GPU, better two; below a minute. Each context is opened by a process of its own through the driver alone, at a
moment that is the same for all of a row, and lost by SIGKILL, one after another. `initialised` is `cuInit`, the
slowest; `its context` is `cuDevicePrimaryCtxRetain`, median and range; `all open` is when the last process has memory.
The same under compute-sanitizer's tools where it is found: there the process that is waited for is the tool and not the
one with the context, so that losing it says nothing; under racecheck also with large pages for what it has pinned
(`harness/referee/audit/huge_pages.py`). The second table is what torch's first uses take in a forked process.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from harness.core.environment import collect
from harness.core.visible_gpus import visible_gpus
from harness.devices.hardware_queues import ONE_QUEUE
from harness.referee.audit.auditor import find_sanitizer
from harness.referee.audit.huge_pages import HugePages
from harness.referee.audit.sanitizer import SanitizerTool

OPENED = "OPENED "
"""What the line of a process begins with that has opened its context."""

CHILD = f"""
import ctypes, json, sys, time

def must(code, what):
    if code != 0:
        sys.exit(what + " failed: CUDA error " + str(code))

driver, begin_unix_s = ctypes.CDLL("libcuda.so.1"), float(sys.argv[1])
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
while time.time() < begin_unix_s:
    time.sleep(0.0005)
marks = [time.time()]
must(driver.cuInit(0), "cuInit")
marks.append(time.time())
must(driver.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
must(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
marks.append(time.time())
must(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
must(driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(2 << 20)), "cuMemAlloc")
marks.append(time.time())
held = {{"late_s": marks[0] - begin_unix_s, "init_s": marks[1] - marks[0], "context_s": marks[2] - marks[1],
        "open_s": marks[3] - marks[0]}}
print({OPENED!r} + json.dumps(held), flush=True)
time.sleep(30)
"""
"""What a process with a context does; it imports no more than that needs, as it has to be ready when the others are."""

AT_ONCE = 6

SHORT_QUEUES = {"CUDA_SCALE_LAUNCH_QUEUES": "0.25x"}
ONE_COPY_QUEUE = {"CUDA_DEVICE_MAX_COPY_CONNECTIONS": "1"}

UNLIMITED, MOST_LIMITED = "as usual", "one short queue, one for copies"

LIMITS: Mapping[str, Mapping[str, str]] = {
    UNLIMITED: {},
    "one queue": ONE_QUEUE,
    "short queues": SHORT_QUEUES,
    "one short queue": {**ONE_QUEUE, **SHORT_QUEUES},
    MOST_LIMITED: {**ONE_QUEUE, **SHORT_QUEUES, **ONE_COPY_QUEUE},
}
"""Name -> variables of the process."""

TOOLS = ("memcheck", "initcheck", "racecheck", "synccheck")
TOOLS_AT_ONCE = 4

LEAD_S = 0.5
"""From the start of the processes to the moment at which they begin; one that begins later is told of."""

TOOL_LEAD_S, TOOLS_LEAD_S = 2.5, 3.5
"""The same under a tool, alone and several at once."""

LATE_S = 0.01

USES = ("`torch.cuda.init`", "a first tensor", "`zero_`", "`index_copy_`", "`clone`", "640 MiB written")

HEAD = (
    "| contexts | processes | GPUs | all open | a process's share | initialised, the slowest | its context | lost |",
    "|---" * 8 + "|",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Contexts that are opened at the same moment: one a process, on `gpus` (UUIDs) in turn."""

    title: str
    gpus: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    tool: tuple[str, ...] = ()
    lead_s: float = LEAD_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Seconds of one process, from when all were to begin (`late_s`) and from when it began (the others)."""

    late_s: float
    init_s: float
    context_s: float
    open_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one case took; `lost_s` is empty where it was not measured."""

    title: str
    gpus: int
    open_s: float
    init_s: float
    contexts_s: tuple[float, ...]
    lost_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.contexts_s or len(self.lost_s) not in (0, len(self.contexts_s)):
            raise ValueError(f"{self.title}: {len(self.contexts_s)} contexts, of which {len(self.lost_s)} were lost")


def cases(gpus: Sequence[str], sanitizer: str | None, large_pages: Mapping[str, str] | None = None) -> list[Case]:
    """What is measured on these GPUs (UUIDs, at least one), in order; without `sanitizer` nothing under its tools.

    `large_pages` are the variables by which a process gets them.
    """
    first = gpus[0]
    spread_out = tuple(gpus[number % len(gpus)] for number in range(AT_ONCE))
    found = []
    for title, variables in LIMITS.items():
        groups = [(first,), (first,), (first,) * AT_ONCE, *([spread_out] if len(gpus) > 1 else [])]
        found += [Case(title=title, gpus=group, variables=variables) for group in groups]
    if sanitizer is None:
        return found
    for name in TOOLS:
        found.append(Case(title=name, gpus=(first,), tool=(sanitizer, "--tool", name), lead_s=TOOL_LEAD_S))
    several = (first,) * TOOLS_AT_ONCE
    tool = (sanitizer, "--tool", TOOLS[0])
    for title in (UNLIMITED, MOST_LIMITED):
        held = Case(title=f"{TOOLS[0]}, {title}", gpus=several, variables=LIMITS[title], tool=tool, lead_s=TOOLS_LEAD_S)
        found.append(held)
    tool = (sanitizer, "--tool", "racecheck")
    for title, variables in {"": {}, ", large pages": large_pages or {}}.items():
        for gpu_of_each in ((first,), (first,), several) if variables or not title else ():
            held = Case(
                title=f"racecheck, one queue{title}",
                gpus=gpu_of_each,
                variables={**ONE_QUEUE, **variables},
                tool=tool,
                lead_s=TOOL_LEAD_S if len(gpu_of_each) == 1 else TOOLS_LEAD_S,
            )
            found.append(held)
    return found


def opening(said: str) -> Opening | None:
    """What a line of a process says of its context; None for a line of a tool, or of an error."""
    return Opening(**json.loads(said.removeprefix(OPENED))) if said.startswith(OPENED) else None


def row_of(case: Case, openings: Sequence[Opening], lost_s: Sequence[float]) -> Row:
    return Row(
        title=case.title,
        gpus=len(set(case.gpus)),
        open_s=max(one.open_s for one in openings),
        init_s=max(one.init_s for one in openings),
        contexts_s=tuple(one.context_s for one in openings),
        lost_s=() if case.tool else tuple(lost_s),
    )


def spread(values: Sequence[float]) -> str:
    """Median and range of several seconds; one as it is; none as nothing."""
    if len(values) < 2:
        return "".join(f"{value:.3f}" for value in values)
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def line(row: Row) -> str:
    count = len(row.contexts_s)
    return (
        f"| {row.title} | {count} | {row.gpus} | {row.open_s:.3f} | {row.open_s / count:.3f} | {row.init_s:.3f} | "
        f"{spread(row.contexts_s)} | {spread(row.lost_s)} |"
    )


def contexts_table(rows: Sequence[Row]) -> list[str]:
    """The lines of the first table; seconds."""
    return [*HEAD, *(line(row) for row in rows)]


def uses_table(processes: Sequence[Sequence[float]]) -> list[str]:
    """The lines of the second: one a process, seconds in the order of `USES`."""
    lines = [f"| process | {' | '.join(USES)} |", "|---" * (len(USES) + 1) + "|"]
    for number, seconds in enumerate(processes, 1):
        lines.append(f"| {number} | " + " | ".join(f"{one:.3f}" for one in seconds) + " |")
    return lines


def document(title: str, about: str, rows: Sequence[Row], processes: Sequence[Sequence[float]]) -> str:
    limits = [
        f"{name}: {' '.join(f'`{key}={value}`' for key, value in variables.items())}"
        for name, variables in LIMITS.items()
        if variables
    ]
    lines = [f"# {title}", "", about, "", f"Seconds. {'; '.join(limits)}.", "", *contexts_table(rows)]
    if processes:
        lines += ["", "torch's first uses in a process forked from one that has torch imported and no context:", ""]
        lines += uses_table(processes)
    return "\n".join(lines) + "\n"


def begin(case: Case, gpu: str, begin_unix_s: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*case.tool, sys.executable, "-c", CHILD, str(begin_unix_s)],
        env={**os.environ, **case.variables, "CUDA_VISIBLE_DEVICES": gpu},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(case: Case, process: subprocess.Popen[str]) -> Opening:
    """Raises `SystemExit` with what the process said where it ended without a context."""
    assert process.stdout is not None
    said = []
    for text in process.stdout:
        said.append(text)
        if (found := opening(text)) is not None:
            if found.late_s > LATE_S:
                print(f"{case.title}: one process began {found.late_s:.3f} s late", file=sys.stderr)
            return found
    sys.exit(f"{case.title}: a context was not opened: {''.join(said)[-2000:].strip() or 'the process ended'}")


def lose(process: subprocess.Popen[str]) -> float:
    """Seconds from SIGKILL to where the process, and what it was a group with, is gone."""
    begun = time.perf_counter()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    took_s = time.perf_counter() - begun
    if process.stdout is not None:
        process.stdout.close()
    return took_s


def measure(case: Case) -> Row:
    begin_unix_s = time.time() + case.lead_s
    processes: list[subprocess.Popen[str]] = []
    lost_s: list[float] = []
    try:
        for gpu in case.gpus:
            processes.append(begin(case, gpu, begin_unix_s))
        openings = [wait_for(case, process) for process in processes]
    finally:
        lost_s += [lose(process) for process in processes]
    return row_of(case, openings, lost_s)


def first_uses() -> list[float]:
    """Seconds that each of `USES` takes in this process, which must not have used CUDA before."""
    held: dict[str, torch.Tensor] = {}

    def zero() -> None:
        held["one"].zero_()
        torch.cuda.synchronize()

    def index_copy() -> None:
        held["words"] = torch.zeros(64, dtype=torch.int32, device="cuda")
        ones = torch.ones(4, dtype=torch.int32, device="cuda")
        held["words"].index_copy_(0, torch.arange(4, device="cuda"), ones)
        torch.cuda.synchronize()

    def clone() -> None:
        held["copy"] = held["words"].clone()
        torch.cuda.synchronize()

    def flush() -> None:
        held["flush"] = torch.empty(640 << 20, dtype=torch.uint8, device="cuda")
        held["flush"].zero_()
        torch.cuda.synchronize()

    uses: tuple[Callable[[], Any], ...] = (
        torch.cuda.init,
        lambda: held.update(one=torch.empty(1, device="cuda")),
        zero,
        index_copy,
        clone,
        flush,
    )
    marks = [time.perf_counter()]
    for use in uses:
        use()
        marks.append(time.perf_counter())
    return [after - before for before, after in itertools.pairwise(marks)]


def forked_uses() -> list[float]:
    """`first_uses` of a process forked from this one. Raises `SystemExit` where it fails."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, json.dumps(first_uses()).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    if not said:
        sys.exit("torch could not use the GPU in a forked process: its traceback is above")
    seconds: list[float] = json.loads(said)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="Markdown file to write, anew after each row")
    parser.add_argument("--only", default="", metavar="WORD", help="only cases whose title has it; no second table")
    given = parser.parse_args()
    environment = collect()
    gpus = visible_gpus(environment)
    if not gpus:
        parser.error("no GPU is visible: `harness doctor` says why")
    sanitizer = find_sanitizer()
    if sanitizer is None:
        print("compute-sanitizer is not found: nothing is measured under its tools", file=sys.stderr)
    title = f"CUDA contexts on {gpus[0].name}"
    about = f"{len(gpus)} GPUs, driver {environment.driver}, torch {environment.torch}, {os.cpu_count()} processors."
    rows: list[Row] = []
    processes: list[list[float]] = []

    def write() -> None:
        if given.out:
            given.out.write_text(document(title, about, rows, processes), encoding="utf-8")

    with closing(HugePages()) as pages:
        for case in cases([gpu.uuid for gpu in gpus], sanitizer, pages.variables(SanitizerTool.RACECHECK)):
            if given.only in case.title:
                rows.append(measure(case))
                write()
    for _ in range(0 if given.only else 2):
        processes.append(forked_uses())
        write()
    print(document(title, about, rows, processes))


if __name__ == "__main__":
    main()
