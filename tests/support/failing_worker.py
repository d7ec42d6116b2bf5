"""A referee's process whose device breaks after some calls, as a GPU does that met an uncorrectable error.

Started by name with the descriptor last, as `harness.referee.worker` is. `BREAKS` names a folder: whoever of several
such processes creates a file in it first is the one that breaks (and a replacement for it breaks too, since a GPU stays
broken); `BREAKS_ALL` breaks every one. From then on every call on the device fails as torch's calls fail then.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from harness.core.choices import DeviceKind
from harness.referee import worker

CALLS_BEFORE = 4


class BrokenAfter:
    """A real host device until `calls` synchronisations have passed; then nothing of it works any more."""

    def __init__(self, real: Any, calls: int) -> None:
        self._real = real
        self._left = calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def synchronize(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
        self._real.synchronize()


def open_device(kind: DeviceKind, index: int) -> Any:
    from harness.devices.device import open_device as real

    device = real(kind, index)
    slot = os.environ["HARNESS_SLOT"]
    if not os.environ.get("BREAKS_ALL"):
        claim = Path(os.environ["BREAKS"]) / "claim"
        try:
            with claim.open("x") as file:
                file.write(slot)
        except FileExistsError:
            if claim.read_text() != slot:
                return device
    return BrokenAfter(device, CALLS_BEFORE)


if __name__ == "__main__":
    worker.main(int(sys.argv[1]), open_device)
