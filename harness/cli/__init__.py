"""The command line: reads arguments, calls, prints, exits. The only part that prints.

Outside layer; trusted side. Exit codes: 0 all went as asked (failing solutions included), 1 a gate or a search for
something failed, 2 the call is wrong, 3 the machine (or the harness) can't, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.cli.evaluate import Evaluate

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None, *, run: Evaluate | None = None) -> int:
    """As `harness.cli.app.main`, which takes some tenths of a second to import: who presses Ctrl-C by then gets a
    message, too.
    """
    try:
        from harness.cli.app import main as called

        return called(arguments, run=run)
    except KeyboardInterrupt:
        sys.stderr.write("harness: interrupted\n")
        return 130  # `output.INTERRUPTED`, which may not be there yet
