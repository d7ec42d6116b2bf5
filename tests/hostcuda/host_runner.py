"""Runs entries of the corpus on the host device: several sources in one extension, so that a compiler starts a few
times instead of two hundred.

    python tests/hostcuda/host_runner.py MODULE.so OUT.jsonl ENTRY...    # what `run_batch` starts, in its own process

Each entry keeps its text and gets a namespace; its launcher `run` is renamed and its macros are undefined behind it. A
line of the joined source is a line of an entry plus an offset, which `Batch` remembers. What does not compile
is split in halves until the entry to blame stands alone. Every entry runs under both schedules, and has to be right
and silent (or reported) in both together.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT))


from harness.hostcuda.translate import build as host_build  # noqa: E402
from tests.hostcuda import corpus_entries as entries  # noqa: E402
from tests.hostcuda.corpus_entries import Entry  # noqa: E402
from tests.hostcuda.results import Finding, Result  # noqa: E402

BATCH = 48
"""Compiling an extension and starting a process that runs it take some three seconds before the first entry's turn."""
RUN_LIMIT_S = 300
KEPT_MODULES = 64
"""Built batches that stay in the cache: two sets of the corpus and of the litmus tests."""
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b.*$", re.M)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.M)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Several entries as one CUDA source. `first_lines[i]` is where line 1 of entry i stands in `source`."""

    entries: tuple[Entry, ...]
    source: str
    declarations: str
    first_lines: tuple[int, ...]

    def place(self, line: int) -> tuple[Entry, int] | None:
        """The entry and its own line number that a line of the joined source belongs to."""
        for entry, first in zip(reversed(self.entries), reversed(self.first_lines), strict=True):
            if line >= first:
                return entry, line - first + 1
        return None


def lazy_results(chosen: Sequence[Entry]) -> Callable[[str], Result]:
    """A function that gives an entry's result by name; the first name of a batch runs that batch."""
    parts = batches(chosen)
    number_of = {entry.name: number for number, part in enumerate(parts) for entry in part}

    @functools.cache
    def results(number: int) -> dict[str, Result]:
        return {result.entry: result for result in run_batch(parts[number])}

    return lambda name: results(number_of[name])[name]


def join(chosen: Sequence[entries.Entry]) -> Batch:
    """One source of several entries."""
    includes: list[str] = []
    parts: list[str] = []
    for entry in chosen:
        for line in _INCLUDE.findall(entry.source):
            if line.strip() not in includes:
                includes.append(line.strip())
    text = "#include <torch/types.h>\n" + "\n".join(includes) + "\n"
    first_lines = []
    for entry in chosen:
        body = _INCLUDE.sub("", entry.source)
        text += f"#define run run_{entry.name}\nnamespace entry_{entry.name} {{\n"
        first_lines.append(text.count("\n") + 1)
        text += body.rstrip("\n") + "\n}\n#undef run\n"
        text += "".join(f"#undef {name}\n" for name in dict.fromkeys(_MACRO.findall(body)))
        text += f"""
void call_{entry.name}(std::vector<torch::Tensor> ins, std::vector<torch::Tensor> outs, std::vector<int64_t> sizes) {{
    std::vector<const void*> in;
    std::vector<void*> out;
    std::vector<long long> size(sizes.begin(), sizes.end());
    for (auto& t : ins) in.push_back(t.data_ptr());
    for (auto& t : outs) out.push_back(t.data_ptr());
    entry_{entry.name}::run_{entry.name}(in.data(), out.data(), size.data());
}}
"""
        parts.append(
            f"void call_{entry.name}(std::vector<torch::Tensor>, std::vector<torch::Tensor>, std::vector<int64_t>);\n"
        )
    return Batch(entries=tuple(chosen), source=text, declarations="".join(parts), first_lines=tuple(first_lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extension:
    name: str
    cpp_sources: tuple[str, ...]
    cuda_sources: tuple[str, ...]
    functions: tuple[str, ...]
    extra_cflags: tuple[str, ...] = ()
    extra_cuda_cflags: tuple[str, ...] = ()
    extra_include_paths: tuple[str, ...] = ()


def build(batch: Batch, headers: host_build.PreparedHeaders) -> tuple[Path, str]:
    """Compiles a batch; returns the module (absent where that failed) and the log.

    The same sources are compiled once a machine; a second process waits for the first.
    """
    digest = hashlib.sha256(
        "\0".join((batch.source, batch.declarations, host_build.fingerprint())).encode()
    ).hexdigest()[:24]
    folder = host_build.default_cache() / "corpus" / digest
    functions = tuple(f"call_{entry.name}" for entry in batch.entries)
    spec = _Extension(
        name=f"corpus_{digest}", cpp_sources=(batch.declarations,), cuda_sources=(batch.source,), functions=functions
    )
    module = host_build.module_path(spec, folder)
    log = ""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not module.exists():
            for command in host_build.prepare(spec, folder, checked=True, headers=headers):
                done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
                log += done.stdout + done.stderr
    _forget_old(folder.parent)
    return module, log


def _forget_old(root: Path) -> None:
    """Each change of an entry or of the compiler leaves modules behind; only the last ones stay."""
    for old in sorted(root.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)[KEPT_MODULES:]:
        shutil.rmtree(old, ignore_errors=True)


def _built(chosen: Sequence[entries.Entry], headers: host_build.PreparedHeaders) -> list[tuple[Batch, Path, str]]:
    """The batch as one extension, or its halves, down to the single entry that does not compile."""
    batch = join(chosen)
    module, log = build(batch, headers)
    if module.exists() or len(chosen) == 1:
        return [(batch, module, log)]
    middle = len(chosen) // 2
    return _built(chosen[:middle], headers) + _built(chosen[middle:], headers)


def _result(entry: entries.Entry, outcome: str, **more: Any) -> Result:
    kind = "broken" if entry.defect else "corpus"
    return Result(entry=entry.name, kind=kind, device="host", outcome=outcome, **more)


def _in_child(batch: Batch, module: Path) -> Iterator[Result]:
    """Runs a batch in a process of its own; an entry that takes the process down is left out of a second try."""
    left = list(batch.entries)
    while left:
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch) / "rows.jsonl"
            command = [
                sys.executable,
                str(HERE / "host_runner.py"),
                str(module),
                str(out),
                *(entry.name for entry in left),
            ]
            begin = time.monotonic()
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT_S, cwd=ROOT)
                ending, detail = f"exit code {done.returncode}", done.stderr[-2000:]
            except subprocess.TimeoutExpired:
                ending, detail = "timeout", ""
            rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
        by_name = {entry.name: entry for entry in left}
        for row in rows:
            entry = by_name[row["entry"]]
            yield _judged(batch, entry, row)
        left = left[len(rows) :]
        if left:
            outcome = "timeout" if ending == "timeout" else "crashed"
            yield _result(left[0], outcome, detail=f"{ending}: {detail}", wall_s=time.monotonic() - begin)
            left = left[1:]


def _judged(batch: Batch, entry: entries.Entry, row: dict[str, Any]) -> Result:
    findings = []
    for report in row["reports"]:
        places = [batch.place(report[key]) for key in ("line", "other_line") if report.get(key)]
        lines = tuple(sorted({line for place in places if place is not None for line in (place[1],)}))
        status = {"misaligned": "memory_error"}.get(report["kind"], report["kind"])
        findings.append(
            Finding(status=status, kernel=report.get("kernel") or None, lines=lines, text=json.dumps(report)[:600])
        )
    errors = {key: float(value) if value != "differs" else value for key, value in row["errors"].items()}
    if findings:
        outcome = "reported"
    elif row["failure"]:
        outcome = "crashed"
    elif entry.defect is not None:
        outcome = "silent"
    else:
        outcome = "passed" if row["agrees"] else "wrong_value"
    return _result(
        entry, outcome, errors=errors, findings=tuple(findings), detail=row["failure"] or "", wall_s=row["wall_s"]
    )


def run_batch(chosen: Sequence[entries.Entry]) -> list[Result]:
    """Builds and runs a few entries together; one result each, in order."""
    results = []
    for batch, module, log in _built(chosen, host_build.prepare_headers()):
        if module.exists():
            results += list(_in_child(batch, module))
        else:
            results.append(_result(batch.entries[0], "build_error", detail=log[-3000:]))
    return results


def batches(chosen: Sequence[entries.Entry]) -> list[list[entries.Entry]]:
    """The groups that are compiled together."""
    return [list(chosen[start : start + BATCH]) for start in range(0, len(chosen), BATCH)]


def compare_host(chosen: Sequence[entries.Entry], jobs: int) -> Iterable[Result]:
    """All entries on the host device, in the order given."""
    host_build.prepare_headers()
    with ThreadPoolExecutor(jobs) as pool:
        for results in pool.map(run_batch, batches(chosen)):
            yield from results


def run_module(path: Path, out: Path, names: Sequence[str]) -> None:
    """In the child: runs each entry under both schedules and appends one JSON line an entry to `out`."""
    from harness.untrusted.contestant.hostcuda import shim

    shim.activate(host_build.prepare_headers(), checked=True)
    module = shim.load_module(path.stem, path)
    by_name = {entry.name: entry for entry in (*entries.corpus(), *entries.broken(), *entries.litmus())}
    with out.open("w") as stream:
        for name in names:
            runs = [_run_once(by_name[name], getattr(module, f"call_{name}"), schedule) for schedule in (0, 1)]
            merged = {
                "entry": name,
                "reports": [report for run in runs for report in run["reports"]],
                "failure": next((run["failure"] for run in runs if run["failure"]), None),
                "wall_s": sum(run["wall_s"] for run in runs),
                "agrees": all(run["agrees"] for run in runs),
                "errors": max((run["errors"] for run in runs), key=lambda found: [str(v) for v in found.values()]),
            }
            stream.write(json.dumps(merged) + "\n")
            stream.flush()


def _run_once(entry: entries.Entry, launcher: Any, schedule: int) -> dict[str, Any]:
    import torch

    from harness.untrusted.contestant.hostcuda import shim

    given = entries.buffers(entry)
    shim.clear()
    shim.set_schedule(schedule)
    inputs = [tensor.cuda() for tensor in given.inputs.values()]
    outputs = [
        torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda") if key in given.fresh else tensor.cuda()
        for key, tensor in given.outputs.items()
    ]
    begin = time.monotonic()
    failure = None
    try:
        launcher(inputs, outputs, list(given.sizes))
        torch.cuda.synchronize()
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    wall_s = time.monotonic() - begin
    if failure is None and shim.sticky_error() != 0:
        failure = f"CUDA error {shim.sticky_error()}"
    reports = shim.collect_reports(leaks=entry.defect is not None and entry.defect.status == "leak")
    found: dict[str, float] = {}
    if entry.defect is None and failure is None:
        results = {key: tensor.cpu() for key, tensor in zip(given.outputs, outputs, strict=True)}
        found = entries.errors(entry, given, results)
    return {
        "reports": reports,
        "failure": failure,
        "wall_s": wall_s,
        "agrees": entry.defect is None and failure is None and entries.agrees(entry, found),
        "errors": {key: value if value != float("inf") else "differs" for key, value in found.items()},
    }


if __name__ == "__main__":
    run_module(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
