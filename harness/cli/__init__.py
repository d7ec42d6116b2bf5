"""The command line: parse arguments, call the harness, print, set the exit code.

Trusted side. Only this room prints. Exit codes:

* 0: the command did its work; a solution that fails is a result, not an error
* 1: a gate failed, or nothing was found
* 2: the arguments are wrong
* 3: the machine or the harness failed
* 130: interrupted by Ctrl-C
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.cli.evaluate import Evaluate

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None, *, run: Evaluate | None = None) -> int:
    """Run one command: import and call `harness.cli.app.main`.

    The import takes some tenths of a second. Ctrl-C during the import prints a message too, not a traceback.
    """
    try:
        from harness.cli.app import main as called

        return called(arguments, run=run)
    except KeyboardInterrupt:
        sys.stderr.write("harness: interrupted\n")
        return 130  # `output.INTERRUPTED`, which may not be imported yet
