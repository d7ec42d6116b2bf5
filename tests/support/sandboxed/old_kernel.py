"""Builds a private root as a kernel without `mount_setattr` would, and says what can be written in it."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

from harness.sandbox import SandboxPolicy, filesystem, mounts, syscalls
from harness.sandbox.policy import Findings


def refuse(target: str, attributes: int) -> None:
    raise OSError(errno.ENOSYS, "no such call on this kernel")


def writable(path: str) -> str:
    try:
        os.close(os.open(f"{path}/planted", os.O_CREAT | os.O_WRONLY))
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "ok"


if __name__ == "__main__":
    shown, kept = sys.argv[1:]
    syscalls.mount_setattr = refuse
    syscalls.unshare(syscalls.CLONE_NEWNS)
    policy = SandboxPolicy(readable=(Path(shown),), writable=(Path(kept),))
    filesystem.build_root(policy, mounts.discover(), owner=(0, 0), ids=(0,), findings=Findings())
    paths = ["/", "/usr", shown, kept, "/tmp", mounts.package_folder()]
    sys.stdout.write(json.dumps({path: writable(path) for path in paths}))
