"""`harness verify`: check a run's records without executing anything."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.output import NOT_FOUND, Json, ProblemsRoot, option, print_json, put, say
from harness.report.format import line
from harness.results.manifest import public_key
from harness.results.reader import StoreError, is_run
from harness.results.verify import verify_run


def verify_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run, for example results/RUN.")],
    key: Annotated[
        Path | None,
        option("--key", "PEM file of the ed25519 key that must have signed the run.  [any key; unsigned runs, too]"),
    ] = None,
    solutions: Annotated[
        list[Path] | None,
        option(
            "--solutions",
            "Folder with the sources that were judged. May be repeated.  [solutions, and the paths of the run]",
        ),
    ] = None,
    problems: ProblemsRoot = None,
    as_json: Json = False,
) -> None:
    """Check a run offline: are its files as they were written, and do its numbers fit?

    The command compares the files with the manifest and its signature, records with their schema, sources and problems
    with their digests, statistics with the raw samples, and verdicts with the run's policy. It executes nothing. The
    exit code is 1 if anything does not hold.

    Without a signature, the manifest shows changes by accident or by people who do not write it again. With --key, only
    the owner of the key can have made the run's files.

    \b
    Examples:
      harness verify results/20260131-120000-1f9c
      harness verify results/nightly --key public.pem --solutions solutions --problems problems
    """
    if not is_run(run):
        raise StoreError(f"{run}: no run: it holds neither run.yaml nor records.jsonl")
    found = verify_run(run, solutions=solutions, problems=problems, key=None if key is None else public_key(key))
    if as_json:
        print_json({"run": str(run), "ok": not found.findings, **dataclasses.asdict(found)})
    else:
        for note in found.notes:
            say(f"note: {note}")
        signed = f"signed by the ed25519 key {line(found.signed_by, 64)}" if found.signed_by else "not signed"
        put(
            *(line(finding) for finding in found.findings),
            f"{run}: {len(found.findings)} findings in {found.records} records ({found.statistics} with raw samples); "
            f"{signed}",
        )
    if found.findings:
        raise typer.Exit(NOT_FOUND)
