"""`python -m harness` is `harness`. Outside layer; imports `cli` only."""

import sys

from harness.cli import main

if __name__ == "__main__":
    code = main()
    # An interrupt that met text being executed (a dataclass being made) is noted by Python, which would end by SIGINT
    # although that was dealt with, and whatever `code` is. The next text that is executed wipes the note out.
    exec("")
    sys.exit(code)
