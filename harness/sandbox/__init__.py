"""Isolate untrusted code: restrict its view, reach and resources, and end it.

Trusted code, Linux only. Parts run in the fork that becomes the sandbox; no line of a submission runs before the last
restriction is active. The harness uses `zygote`; the names below serve for policies and reports. See
guides/design/sandbox.md.
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
