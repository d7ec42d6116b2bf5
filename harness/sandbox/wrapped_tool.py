"""Pipes, folder and variables of the tool around an enclosed zygote.

Trusted code. A tool such as compute-sanitizer or ncu has a library in every process; it reports each fork over pipes.
If a child's pipes are closed, or it cannot make new ones in the tool's folder, the library ends it at its next fork.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from harness.sandbox.environment import scrub
from harness.sandbox.policy import SandboxPolicy

HOST_PID = "@host-pid@"
"""Placeholder for a process id in a command line of `pid_namespace`."""

_FOLDER = "/NVIDIA-treetracker"
_KEPT = (_FOLDER, "anon_inode:[eventpoll]")
_STARTED_WITH = frozenset({"HOME", "OMP_WAIT_POLICY", "OPENBLAS_NUM_THREADS"})
"""Variables of a zygote's start besides those that `scrub` allows."""


def descriptors() -> set[int]:
    """Return the calling process's descriptors that belong to the tool."""
    return {number for number, target in _open().items() if any(mark in target for mark in _KEPT)}


def folder() -> Path | None:
    """Return the folder of the tool's pipes; None without a tool."""
    found = {Path(target).parent for target in _open().values() if _FOLDER in target}
    return min(found) if found else None


def policy_under(policy: SandboxPolicy) -> SandboxPolicy:
    """Make the tool's folder writable if the policy keeps the child with the tool."""
    place = folder() if policy.under_tool else None
    return policy if place is None else replace(policy, writable=(*policy.writable, place))


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the tool added to a zygote's environment.

    The zygote started with a known set of variables, so every other one comes from the tool.
    """
    passed = scrub(environment).keys() | _STARTED_WITH
    return {name: value for name, value in environment.items() if name not in passed}


def _open() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found
