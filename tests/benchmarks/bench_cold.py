"""What a run waits for that begins with nothing: seconds from the start of the command to builds and verdicts.

    python tests/benchmarks/bench_cold.py solutions/examples/optimised --device cuda --markdown cold.md
    python tests/benchmarks/bench_cold.py one.py --problem level1/16 --rounds 5 --ways text

Each run is a process of its own with a cache that holds the shared headers only (made once, timed apart). Ways: `text`
builds begin with what the solutions' texts say, which is what the harness does; `harvest` they begin when it is found
out what the solutions ask for; `warm` everything is in the cache, of the run before. Rounds alternate between the ways.
The seconds are `first built` and `all built` (events of the pipeline), `first judged` (when the first slot began with a
solution) and `total`, the command's end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.core import environment
from harness.core.choices import DeviceKind
from harness.core.config import RunConfig, resolve
from harness.core.subprocesses import search_path
from harness.results.reader import new_run_id
from harness.runner.events import BuildFinished, Event, SolutionFinished
from harness.runner.executors.prestart import start_ahead
from harness.runner.executors.toolchains import open_toolchain
from harness.runner.run import evaluate_run
from harness.toolchain import Compilations

WAYS = ("harvest", "text", "warm")
MARKS = ("first_built_s", "all_built_s", "first_judged_s", "total_s")
_LIMIT_S = 600.0


def settings(options: argparse.Namespace, cache: Path, out: Path) -> RunConfig:
    given = {name: held for name in ("paths", "problem", "device") if (held := getattr(options, name)) is not None}
    machine = environment.machine(environment.collect())
    return resolve(machine=machine, run_id=new_run_id(), file=None, options={**given, "cache_dir": cache, "out": out})


def one_run(options: argparse.Namespace) -> dict[str, Any]:
    """The run of this process, which began at `options.begin_unix_s`."""
    if options.ways == "harvest":
        Compilations.foresee = lambda self: None  # type: ignore[method-assign]
    built: list[float] = []
    solutions: list[dict[str, Any]] = []
    begun: list[float] = []

    def on_event(event: Event) -> None:
        if isinstance(event, BuildFinished):
            built.append(time.time() - options.begin_unix_s)
        elif isinstance(event, SolutionFinished):
            record = event.record
            build = record.build or {}
            modules = build.get("modules", ())
            if (ran_on := record.evidence.get("ran_on")) is not None:
                begun.append(ran_on["begin_unix_s"] - options.begin_unix_s)
            solutions.append(
                {
                    "solution": record.solution,
                    "status": record.status.value,
                    "judged_s": time.time() - options.begin_unix_s,
                    "harvest_s": build.get("harvest_s"),
                    "waited_for_compilers_s": build.get("compile_s"),
                    "compile_s": [module["compile_s"] for module in modules],
                    "begun_from_text": [module["begun_from_text"] for module in modules],
                    "cached": [module["cached"] for module in modules],
                }
            )

    config, found = settings(options, options.cache, options.out), environment.collect()
    with start_ahead(config, found) as ahead:  # as `harness eval` does
        evaluate_run(config, environment=found, on_event=on_event, ahead=ahead)
    return {
        "way": options.ways,
        "first_built_s": min(built, default=None),
        "all_built_s": max(built, default=None),
        "first_judged_s": min(begun, default=None),
        "total_s": time.time() - options.begin_unix_s,
        "solutions": solutions,
    }


def begin_run(way: str, arguments: Sequence[str], cache: Path, out: Path) -> dict[str, Any]:
    """The same in a fresh process. Raises `SystemExit` where it fails."""
    command = [sys.executable, __file__, *arguments, "--ways", way, "--cache", str(cache), "--out", str(out)]
    done = subprocess.run(
        [*command, "--begin-unix-s", str(time.time())],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        env={**os.environ, **search_path(os.environ)},
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{way}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def line(held: dict[str, Any]) -> str:
    text = ", ".join(f"{name.removesuffix('_s').replace('_', ' ')} {held[name]:.1f} s" for name in MARKS if held[name])
    early = [one for solution in held["solutions"] for one in solution["begun_from_text"]]
    statuses = " ".join(solution["status"] for solution in held["solutions"])
    return f"{held['way']:8} {text}; {sum(early)} of {len(early)} modules begun from the text; {statuses}"


def markdown(runs: Sequence[dict[str, Any]], warm_up_s: float) -> str:
    """The page to commit: medians, one row a way."""
    count = len(runs[0]["solutions"])
    rows = [
        f"# A run that begins with nothing: {count} solutions",
        "",
        f"{os.cpu_count()} processors; shared headers made ready once in {warm_up_s:.1f} s. Medians of seconds since "
        "the command's start. The harness builds by `text`.",
        "",
        "| way | runs | first built | all built | first slot began | total |",
        "|---|---|---|---|---|---|",
    ]
    for way in WAYS:
        same = [held for held in runs if held["way"] == way]
        if same:
            cells = []
            for name in MARKS:
                known = [held[name] for held in same if held[name] is not None]
                cells.append(f"{statistics.median(known):.1f} s" if known else "")
            rows.append(f"| `{way}` | {len(same)} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--problem")
    parser.add_argument("--device", choices=[kind.value for kind in DeviceKind])
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    for name, kind in (("--cache", Path), ("--out", Path), ("--begin-unix-s", float)):  # between the processes only
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.begin_unix_s is not None:
        sys.stdout.write(json.dumps(one_run(options)) + "\n")
        return 0
    passed_on = [str(path.resolve()) for path in options.paths]
    for name in ("problem", "device"):
        if getattr(options, name) is not None:
            passed_on += [f"--{name}", getattr(options, name)]
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        cache = Path(scratch) / "cache"
        begin = time.perf_counter()
        open_toolchain(settings(options, cache, Path(scratch)).device, cache).warm_up()
        prepared = {path.name for path in cache.iterdir()}
        warm_up_s = time.perf_counter() - begin
        sys.stdout.write(f"warm-up {warm_up_s:.1f} s\n")
        for number in range(options.rounds):
            for way in options.ways.split(","):
                for path in cache.iterdir() if way != "warm" else ():
                    if path.name not in prepared:
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
                runs.append(begin_run(way, passed_on, cache, Path(scratch) / f"out-{number}-{way}"))
                sys.stdout.write(f"{line(runs[-1])}\n")
                sys.stdout.flush()
                if options.json is not None:
                    held = {"warm_up_s": warm_up_s, "cpu_count": os.cpu_count(), "runs": runs}
                    options.json.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")
                if options.markdown is not None:
                    options.markdown.write_text(markdown(runs, warm_up_s), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
