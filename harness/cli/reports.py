"""`harness report` and `harness plot`: an HTML page, and its figures."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from harness.catalog.source_lookup import SourceFinder
from harness.cli.output import UNABLE, Json, fail, opened, option, print_json, put
from harness.cli.results import Baseline, Runs, find, known_authors, log_of, recorded_baseline, source_roots
from harness.report import figures
from harness.report.feedback import feedback
from harness.report.html import Changes, Item, render
from harness.results.compare import compare_runs
from harness.results.reader import StoreError, timestamp
from harness.results.scoring import EAGER, LikeGroup, by_group, entries_of
from harness.results.writer import write_whole


def report_command(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", help="HTML file to write.")] = Path("report.html"),
    base: Annotated[
        Path | None,
        option("--base", "Earlier run; the page lists the changes since it.  [of two runs, the first; else none]"),
    ] = None,
    solutions: Annotated[
        list[Path] | None,
        option(
            "--solutions",
            "Folder to search for the sources of solutions. May be repeated.  [solutions, and the paths of the runs]",
        ),
    ] = None,
    title: Annotated[str, typer.Option("--title", help="Heading of the page.")] = "Kernel results",
    baseline: Baseline = EAGER,
    no_figures: Annotated[bool, typer.Option("--no-figures", help="Write the page without figures.")] = False,
    as_json: Json = False,
) -> None:
    """Write one HTML page about runs: leaderboards, figures, solutions, changes.

    The page needs no network and no other file. It shows the source of a solution if a file with the digest of the
    evaluated source is found. With two runs, or with --base, it lists the changes from the earlier to the later run.

    \b
    Examples:
      harness report results/20260131-120000-1f9c --out report.html
      harness report results/* --title "Week 5"
      harness report results/today --base results/yesterday --out changes.html
    """
    stores = [opened(path) for path in find(runs)]
    before = opened(base) if base is not None else stores[0] if len(stores) == 2 else None
    finder = SourceFinder(source_roots(solutions, stores))
    items = []
    later = []
    for store in stores:
        records = store.records()
        if before is None or store.folder.resolve() != before.folder.resolve():
            later += records
        for record in records:
            source, log = finder.source_of(record), log_of(store, record)
            text = feedback(record, source=source, log=log)
            items.append(Item(record=record, run=store.folder.name, source=source, log=log, feedback=text))
    if not items:
        raise StoreError("these runs have no records: there is nothing to report")
    baseline = recorded_baseline(baseline, [item.record for item in items])
    changes = None
    if before is not None and not later:
        raise StoreError(f"--base {base} is the only run: name a later run too, or leave --base out")
    if before is not None:
        others = [held.folder.name for held in stores if held.folder.resolve() != before.folder.resolve()]
        name = others[0] if len(others) == 1 else f"the {len(others)} other runs"
        changes = Changes(before=before.folder.name, after=name, found=compare_runs(before.records(), later))
    page = render(
        items,
        title=title,
        made_at=timestamp(),
        changes=changes,
        baseline=baseline,
        with_figures=not no_figures,
        authors=known_authors(stores),
    )
    write_whole(out, page.encode("utf-8"))
    if as_json:
        print_json({"page": str(out), "records": len(items), "bytes": len(page.encode("utf-8"))})
    else:
        put(f"{out}: {len(items)} results of {len(stores)} run{'s' if len(stores) > 1 else ''}")


class Form(StrEnum):
    """File formats of figures."""

    svg = "svg"
    png = "png"
    pdf = "pdf"


def plot_command(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", help="Folder for the figures.")] = Path("figures"),
    form: Annotated[
        Form, typer.Option("--format", help="File format: vectors for papers (pdf, svg), or pixels (png).")
    ] = Form.pdf,
    dpi: Annotated[int, typer.Option("--dpi", min=30, max=1200, help="Pixels per inch, for png.")] = 200,
    baseline: Baseline = EAGER,
    as_json: Json = False,
) -> None:
    """Write the report's figures as files: speedups, fast_p curves, roofline.

    There is one set of figures for each device, processor and workload, because only such results are comparable. The
    command needs the extra `plots` (matplotlib).

    \b
    Examples:
      harness plot results/20260131-120000-1f9c --out figures --format pdf
      harness plot results/* --format png --dpi 300
    """
    records = [record for path in find(runs) for record in opened(path).records()]
    baseline = recorded_baseline(baseline, records)
    written = []
    for group, own in by_group(records, baseline).items():
        entries = entries_of(own, baseline=baseline)
        for drawing in figures.drawings(group, entries, figures.points_of(own, baseline=baseline)):
            path = out / f"{drawing.name}-{_file_name(group)}.{form.value}"
            try:
                data = figures.drawn(drawing, form.value, dpi=dpi)
            except figures.MissingPlots as error:
                fail(str(error), UNABLE)
            write_whole(path, data)
            written.append((path, drawing.caption))
    if not written:
        raise StoreError("these runs have no timed solutions: there is nothing to draw")
    if as_json:
        print_json([{"file": str(path), "caption": caption} for path, caption in written])
    else:
        put(*(str(path) for path, _ in written))


def _file_name(group: LikeGroup) -> str:
    parts = [group.device, group.processor, group.workload, group.baseline, group.precision]
    if group.driver:
        parts.insert(2, group.driver)
    return "-".join(re.sub(r"[^A-Za-z0-9]+", "_", part).strip("_")[:40].lower() or "unnamed" for part in parts)
