"""Run the command line: `python -m harness` is `harness`."""

import sys

from harness.cli import main

if __name__ == "__main__":
    code = main()
    # If Ctrl-C arrives while Python executes a string (as `@dataclass` does), Python remembers it and ends the
    # process by SIGINT, although `main` handled the interrupt and chose `code`. Executing another string clears that.
    exec("")
    sys.exit(code)
