"""`harness export parquet` and `export schema`: records for other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.output import UNABLE, Json, choice, chosen, fail, print_json, print_text, say, writable
from harness.cli.results import Runs
from harness.core.config import ConfigError
from harness.results.columns import write_parquet
from harness.results.frame import NESTED, MissingParquet
from harness.results.schema import SCHEMAS

FILES = {name.removesuffix(".json"): name for name in SCHEMAS}


def export_parquet(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", help="The file, for example records.parquet.")],
    baseline: Annotated[str, typer.Option("--baseline", help="Baseline of the speedups.")] = "eager",
    nested: Annotated[
        list[str] | None,
        choice("--nested", NESTED, "Add this field of the records as a column of JSON texts. May be repeated.  [none]"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: Json = False,
) -> None:
    """Export the records of runs as one Parquet file, a row a record.

    The columns are those of `harness.load_records`. Needs the extra `parquet` (pyarrow). Several processes read a large
    run; memory does not grow with it.

    \b
    Examples:
      harness export parquet results/nightly --out nightly.parquet
      harness export parquet results --nested timing --out all.parquet
    """
    names = tuple(dict.fromkeys(chosen("--nested", name, NESTED) for name in nested or ()))
    if out.is_dir():
        raise ConfigError(f"--out {out}: it is a folder; name a file")
    if out.exists() and not force:
        raise ConfigError(f"--out {out}: it exists; name another file, or pass --force")
    try:
        rows, notes = write_parquet(runs, writable(out, "--out"), baseline=baseline, nested=names)
    except MissingParquet as error:
        fail(str(error), UNABLE)
    for note in notes:
        say(f"note: {note}")
    if as_json:
        print_json({"file": str(out), "rows": rows, "notes": notes})
    else:
        say(f"{rows} rows written to {out}")


def export_schema(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="record (a line of records.jsonl) or run (run.yaml).")
    ] = "record",
) -> None:
    """Print the JSON Schema of records or of run.yaml.

    \b
    Examples:
      harness export schema > record.schema.json
      harness export schema run
    """
    name = chosen("WHAT", what, tuple(FILES))
    print_text(json.dumps(SCHEMAS[FILES[name]](), indent=2))
