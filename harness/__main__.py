"""`python -m harness` is `harness`. Outside layer; imports `cli` only."""

import sys

from harness.cli import main

if __name__ == "__main__":
    sys.exit(main())
