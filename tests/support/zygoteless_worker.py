"""A referee process whose zygotes die of their imports.

Started by tests/unit/runner/executors/test_prestart.py in the place of `harness.referee.worker`. UNREADY_TIMES says
for how many processes it is so, and a file of that name counts them; those that follow are as ever.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from harness.referee import worker

if __name__ == "__main__":
    count = Path(os.environ["UNREADY_COUNT"])
    with count.open("a") as file:
        file.write("x")
    if len(count.read_text()) <= int(os.environ["UNREADY_TIMES"]):
        worker.PRELOADED = ("no_such_module",)  # type: ignore[assignment]
    worker.main(int(sys.argv[1]))
