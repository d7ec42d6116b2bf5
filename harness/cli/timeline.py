"""`harness timeline`: what each device did in every second of a run.

Outside layer; trusted side. Reads results, starts nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.output import Json, opened, print_json, put
from harness.report import timeline
from harness.results.reader import StoreError


def timeline_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder: results/RUN.")],
    as_json: Json = False,
) -> None:
    """Show where each GPU's seconds went: solutions, references, checks, preparing, idle.

    \b
    Example:
      harness timeline results/20260131-120000-1f9c
    """
    store = opened(run)
    found = timeline.stays(store.records())
    if not found:
        raise StoreError(f"{run}: no record says where and when it ran; runs of older versions do not")
    if as_json:
        shares = [share.to_json() for share in timeline.shares(found)]
        print_json({"sessions": store.head.get("sessions", []), "devices": shares})
    else:
        put(*timeline.lines(found))
