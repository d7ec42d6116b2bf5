"""Whether another process's work on the GPU shows in the gaps of a kernel that reads the clock."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from harness.devices import gpu_sharing_probe

pytestmark = [pytest.mark.gpu, pytest.mark.exclusive_gpu]

BUSY = """
import sys, torch
held = torch.ones(64 * 2**20, device="cuda")
torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.readline()
for _ in range(400):
    for _ in range(50):
        held.mul_(1.0)
    torch.cuda.synchronize()
    if sys.stdin in __import__("select").select([sys.stdin], [], [], 0)[0]:
        break
print("over", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def neighbour() -> Iterator[subprocess.Popen[str]]:
    """Another process with a context on the GPU, idle until it is told to work."""
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_a_neighbours_work_shows_and_its_mere_presence_does_not(neighbour: subprocess.Popen[str]) -> None:
    assert gpu_sharing_probe.wait_until_alone(0, 1.0).alone
    tell(neighbour)
    time.sleep(0.2)
    gaps = [gpu_sharing_probe.widest_gap_s(0) for _ in range(5)]
    assert all(gap is not None and gap > gpu_sharing_probe.GAP_NS * 1e-9 for gap in gaps), gaps
    look = gpu_sharing_probe.wait_until_alone(0, 0.2)
    assert not look.alone
    tell(neighbour)
    assert neighbour.stdout is not None
    assert neighbour.stdout.readline() == "over\n"
    assert gpu_sharing_probe.wait_until_alone(0, 1.0).alone
