"""What the tool around an enclosed zygote needs in the children: its pipes, their folder, its variables.

Imports the policy and the environment rules. Trusted code. Such a tool (compute-sanitizer, ncu) lives in every process
it watches, as libraries that report each fork over pipes opened beforehand; a child whose pipes were closed, or that
can't make new ones in the tool's folder, is ended by those libraries at its next fork.
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
"""Stands for a process id in a command line that `enclosure` runs."""

_FOLDER = "/NVIDIA-treetracker"
_KEPT = (_FOLDER, "anon_inode:[eventpoll]")
_STARTED_WITH = frozenset({"HOME", "OMP_WAIT_POLICY", "OPENBLAS_NUM_THREADS"})
"""What a zygote is started with beside what `scrub` lets pass."""


def descriptors() -> set[int]:
    """The calling process's descriptors that are the tool's."""
    return {number for number, target in _open().items() if any(mark in target for mark in _KEPT)}


def folder() -> Path | None:
    """Where the tool keeps its pipes; None where no tool is around."""
    found = {Path(target).parent for target in _open().values() if _FOLDER in target}
    return min(found) if found else None


def policy_under(policy: SandboxPolicy) -> SandboxPolicy:
    """`policy` with the tool's folder writable, if it says that the child stays with the tool."""
    place = folder() if policy.under_tool else None
    return policy if place is None else replace(policy, writable=(*policy.writable, place))


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """What the tool added to a zygote's environment, whatever the names: all else was scrubbed before it started."""
    passed = scrub(environment).keys() | _STARTED_WITH
    return {name: value for name, value in environment.items() if name not in passed}


def _open() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found
