"""The command line: reads arguments, calls, prints, exits. The only part that prints.

Outside layer; trusted side. Exit codes: 0 all went as asked (failing solutions included), 1 a gate or a search for
something failed, 2 the call is wrong, 3 the machine (or the harness) can't, 130 interrupted.
"""

from harness.cli.app import main

__all__ = ["main"]
