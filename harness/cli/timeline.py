"""`harness timeline`: show how each device spent its time during a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.output import Json, opened, print_json, put
from harness.report import timeline
from harness.results.reader import StoreError


def timeline_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run, for example results/RUN.")],
    as_json: Json = False,
) -> None:
    """Show how each GPU spent its time: solutions, references, checks, idle, ….

    \b
    Example:
      harness timeline results/20260131-120000-1f9c
    """
    store = opened(run)
    found = timeline.stays(store.records())
    if not found:
        raise StoreError(f"{run}: no record has a device and a start time; older versions did not write them")
    if as_json:
        shares = [share.to_json() for share in timeline.shares(found)]
        print_json({"sessions": store.head.get("sessions", []), "devices": shares})
    else:
        put(*timeline.lines(found))
