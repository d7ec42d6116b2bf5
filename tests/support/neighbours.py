"""What tests that run beside others on one GPU may not look at."""

from __future__ import annotations

import os

from harness.core.choices import DeviceKind
from harness.core.task import Outcome
from harness.devices.interference import DISTURBED
from harness.referee.timing.relaunching import SLOWER_RELAUNCHED
from harness.referee.timing.speedup import UNEXPLAINED


def labels_but_neighbours(outcome: Outcome, device: DeviceKind) -> set[str]:
    """The outcome's labels, all of them but where tests run side by side (pytest-xdist) on a GPU: there they take their
    time from each other, and what that costs may be labelled."""
    beside = device is DeviceKind.CUDA and "PYTEST_XDIST_WORKER" in os.environ
    return set(outcome.labels) - ({UNEXPLAINED, DISTURBED, SLOWER_RELAUNCHED} if beside else set())
