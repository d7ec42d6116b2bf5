"""An owner of a zygote, run as another user or without capabilities; writes what it saw to a file."""

from __future__ import annotations

import json
import os
import select
import sys
from pathlib import Path

from harness.sandbox import SandboxPolicy, SandboxUnavailable
from harness.sandbox.zygote import Zygote

TARGETS = Path(__file__).parent
WAIT_S = 30.0


def main(out: Path, forbidden: str) -> None:
    log = out / "log.txt"
    plain = SandboxPolicy(readable=(TARGETS,), max_memory_bytes=256 * 2**20)
    seen = {}
    with Zygote(env={"PYTHONPATH": str(TARGETS)}, log_path=out / "zygote.txt") as zygote:
        with zygote.spawn("honest:sleep", plain, log) as child:
            seen = child.report.to_json()
            seen["killed"] = child.kill().cause
        try:
            with zygote.spawn("honest:sleep", SandboxPolicy(mode="strict", readable=(TARGETS,)), log) as child:
                seen["strict"] = child.report.strength
        except SandboxUnavailable as error:
            seen["strict"] = f"SandboxUnavailable: {error}"
        reading, writing = os.pipe()
        wait_read, wait_write = os.pipe()
        with zygote.spawn("attacks:daemon", plain, log, fds=(writing, wait_read)) as child:
            os.close(writing)
            os.close(wait_write)
            report = child.wait(WAIT_S)
            seen["daemon"] = report.cause if report else "still running"
        seen["daemons_left"] = 0 if _closed(reading) else 1
        with zygote.spawn("attacks:hog_private", plain, log) as child:
            report = child.wait(WAIT_S)
            seen["memory"] = report.cause if report else "still running"
        with zygote.spawn("attacks:network", plain, log) as child:
            child.channel.send({"port": 9, "abstract": "none", "path": "/none"})
            seen["network"] = child.channel.receive(WAIT_S).message["outcome"]
        with zygote.spawn("attacks:write_everywhere", plain, log) as child:
            child.channel.send({"paths": [forbidden, "/etc", "."]})
            seen["written"] = child.channel.receive(WAIT_S).message["outcome"]
    (out / "seen.json").write_text(json.dumps(seen))


def _closed(pipe: int) -> bool:
    while select.select([pipe], [], [], WAIT_S)[0]:
        if not os.read(pipe, 65536):
            return True
    return False


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
