"""`harness import kernelbench` and `harness export kernelbench`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from harness.catalog import CatalogError, load_problems
from harness.cli.output import Json, ProblemsRoot, opened, option, print_json, put, say
from harness.core.config import ConfigError
from harness.core.record import Record
from harness.report import format as show
from harness.results import kernelbench
from harness.results.evidence import text
from harness.results.writer import RunStore

EVAL_RESULTS = "eval_results.json"
PASS_AT_K = "pass_at_k_results.json"


def import_kernelbench(
    eval_results: Annotated[
        Path,
        typer.Argument(metavar="EVAL_RESULTS", help="KernelBench's eval_results.json, or the folder that holds it."),
    ],
    level: Annotated[int, typer.Option("--level", help="Level of the problems in the file.", min=1)],
    out: Annotated[Path, typer.Option("--out", help="Folder of the new run.")],
    baseline: Annotated[
        list[Path] | None,
        typer.Option(
            "--baseline-file",
            help="KernelBench's file of baseline times; without it there are no speedups. May be repeated.",
        ),
    ] = None,
    pass_at_k: Annotated[
        Path | None,
        option("--pass-at-k", "KernelBench's pass@k file.  [pass_at_k_results.json next to the results, if it exists]"),
    ] = None,
    author: Annotated[
        str | None, option("--author", "Author of the results.  [name of the folder that holds the file]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Import KernelBench's result files as a run, and show its metrics.

    The metrics are fast_p, geometric mean and pass@k.

    Verdicts and times are KernelBench's. The records get the workload `kernelbench`, so they are ranked only among
    themselves. KernelBench's older format (one object for each problem), null entries and NaN are accepted.

    \b
    Example:
      harness import kernelbench runs/x/eval_results.json --level 1 --baseline-file times.json --out results/x
    """
    path = eval_results / EVAL_RESULTS if eval_results.is_dir() else eval_results
    beside = path.with_name(PASS_AT_K)
    done = kernelbench.import_results(
        path,
        out,
        level=level,
        author=author or path.resolve().parent.name,
        baselines=baseline or (),
        pass_at_k=pass_at_k or (beside if beside.is_file() else None),
    )
    for note in done.notes:
        say(f"note: {note}")
    averages = done.pass_at_k["averages"]
    if as_json:
        print_json(
            {
                "run": str(out),
                "records": len(done.records),
                "metrics": done.metrics.to_json(),
                "pass_at_k": averages,
                "notes": list(done.notes),
            }
        )
        return
    put(f"{out}: {len(done.records)} records", _figures(done.metrics, averages))
    say(f"next: harness leaderboard {out}")


def _figures(metrics: kernelbench.Metrics, averages: Mapping[str, Any]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    rows = [
        ("problems (sample 0)", str(metrics.problems)),
        ("compiled", str(metrics.compiled)),
        ("correct", str(metrics.correct)),
        ("geometric mean speedup of correct ones", show.speedup(metrics.geomean)),
        *((f"fast_{p:g}", show.share(share)) for p, share in metrics.fast_p.items()),
        *((show.line(name, 40), show.value("", held)) for name, held in averages.items()),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def export_kernelbench(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run, for example results/RUN.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the files.")],
    author: Annotated[str | None, option("--author", "Export only the results of this author.  [all]")] = None,
    level: Annotated[
        int | None, typer.Option("--level", help="Export only the problems of this level.  [all]", min=1)
    ] = None,
    k: Annotated[list[int] | None, typer.Option("--k", help="Compute pass@k for this k. May be repeated.  [1]")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    problems: ProblemsRoot = None,
    as_json: Json = False,
) -> None:
    """Export a run as KernelBench's result files.

    The files are eval_results.json, baseline_time_torch.json and pass_at_k_results.json.

    Times are in milliseconds, -1 means absent, and each problem has a list of samples. A file holds one author and one
    level: if the run has several, the files go to AUTHOR/levelN below --out.

    \b
    Examples:
      harness export kernelbench results/20260131-120000-1f9c --out runs/mine
      harness export kernelbench results/nightly --out runs/nightly --author some-model --level 1 --k 1 --k 5
    """
    if k and min(k) < 1:
        raise ConfigError(f"--k must be at least 1, not {min(k)}")
    store = opened(run)
    records = store.records()
    done = kernelbench.export_run(
        records,
        out,
        file_names=_file_names(store, records, problems),
        author=author,
        level=level,
        ks=tuple(sorted(set(k or (1,)))),
        overwrite=force,
    )
    for note in done.notes:
        say(f"note: {note}")
    if as_json:
        print_json({"files": [str(path) for path in done.files], "notes": list(done.notes)})
    else:
        put(*(str(path) for path in done.files))


def _file_names(store: RunStore, records: Iterable[Record], problems: Path | None) -> dict[str, str]:
    """Return problem id -> file name, from the named folder or the run's."""
    try:
        catalog = load_problems(problems or Path(text(store.head, "config", "problems") or "problems").expanduser())
    except CatalogError:
        if problems is not None:
            raise
        return {}
    return {record.problem: item.path.name for record in records if (item := catalog.known.get(record.problem))}
