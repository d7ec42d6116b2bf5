"""Walls around untrusted code: what a child process may see, reach and use up, and how it is ended.

Imports nothing of the harness but `wire`. Trusted code; parts of it run inside the fork that becomes the sandbox, and
nothing of the submission runs before the last wall stands. Linux only. `zygote` is how the rest of the harness uses
it; the names below are for making policies and reading reports.
"""

from harness.sandbox.policy import Cause, ExitReport, SandboxPolicy, SandboxReport, SandboxUnavailable, Strength
from harness.sandbox.probing import probe

__all__ = [
    "Cause",
    "ExitReport",
    "SandboxPolicy",
    "SandboxReport",
    "SandboxUnavailable",
    "Strength",
    "probe",
]
