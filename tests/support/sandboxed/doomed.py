"""An owner that gets killed: starts a zygote and a child that writes to the descriptor given, and says their ids."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from harness.sandbox import SandboxPolicy
from harness.sandbox.zygote import Zygote

TARGETS = Path(__file__).parent

if __name__ == "__main__":
    writing, waiting = int(sys.argv[1]), int(sys.argv[2])
    zygote = Zygote(env={"PYTHONPATH": str(TARGETS)})
    child = zygote.spawn(
        "attacks:daemon", SandboxPolicy(readable=(TARGETS,)), Path(sys.argv[3]), fds=(writing, waiting)
    )
    sys.stdout.write(f"{zygote.pid} {child.pid}\n")
    sys.stdout.flush()
    time.sleep(600)
