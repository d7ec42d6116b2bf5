"""`harness import kernelbench` and `harness export kernelbench`: results to and from KernelBench's files.

Outside layer; trusted side. Reads and writes results, starts nothing.
"""

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
from harness.results.writer import RunStore

EVAL_RESULTS = "eval_results.json"
PASS_AT_K = "pass_at_k_results.json"


def import_kernelbench(
    eval_results: Annotated[Path, typer.Argument(metavar="EVAL_RESULTS", help="Their file, or the folder it is in.")],
    level: Annotated[int, typer.Option("--level", help="The level that the file is about.", min=1)],
    out: Annotated[Path, typer.Option("--out", help="The new run's folder.")],
    baseline: Annotated[
        list[Path] | None,
        typer.Option("--baseline", help="Their baseline times, without which there are no speedups; may be repeated."),
    ] = None,
    pass_at_k: Annotated[Path | None, option("--pass-at-k", "Their pass@k file.  [the one beside the results]")] = None,
    author: Annotated[str | None, option("--author", "Whose results they are.  [name of the file's folder]")] = None,
    as_json: Json = False,
) -> None:
    """Make a run of KernelBench's result files, and show its metrics: fast_p, geometric mean, pass@k.

    Verdicts and times stay KernelBench's: the records have the workload `kernelbench` and are ranked among
    themselves. The older form (one object a problem), null entries and NaN are understood.

    \b
    Example:
      harness import kernelbench runs/x/eval_results.json --baseline baseline_time_torch.json --level 1 --out results/x
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
    say(f"go on with: harness leaderboard {out}")


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
    for name, text in rows:
        table.add_row(name, text)
    return table


def export_kernelbench(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder: results/RUN.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the files to write.")],
    author: Annotated[str | None, option("--author", "Only this author's.  [all]")] = None,
    level: Annotated[int | None, typer.Option("--level", help="Only this level.", min=1)] = None,
    k: Annotated[list[int] | None, typer.Option("--k", help="pass@k for this k; may be repeated.  [1]")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
    problems: ProblemsRoot = None,
    as_json: Json = False,
) -> None:
    """Write a run as KernelBench's files: eval_results.json, baseline_time_torch.json, pass_at_k_results.json.

    Milliseconds, -1 for absent, a list of samples a problem. One author and level go into the folder itself, several
    each into AUTHOR/levelN below it, since a file holds one of each.

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
    """Problem id -> file name, from the folder named, else from the one that the run was made with, if it is there."""
    if problems is not None:
        catalog = load_problems(problems)
    else:
        settings = store.head.get("config")
        held = settings.get("problems") if isinstance(settings, dict) else None
        folder = Path(held).expanduser() if isinstance(held, str) else Path("problems")
        try:
            catalog = load_problems(folder)
        except CatalogError:
            return {}
    known = catalog.known
    return {record.problem: known[record.problem].path.name for record in records if record.problem in known}
