"""`harness doctor` and `harness warmup`: what this machine can do, and getting it ready.

Outside layer; trusted side.
"""

from __future__ import annotations

from harness import doctor, environment
from harness.cli.output import UNABLE, Json, fail, print_json, put
from harness.report import terminal


def doctor_command(as_json: Json = False) -> None:
    """Say what this machine has, what that enables, and what to do where something is missing.

    Exit code 0 if at least one device (cuda or host) can be used, else 3.

    \b
    Example:
      harness doctor
    """
    from harness.sandbox import probe

    found = environment.collect()
    diagnosis = doctor.diagnose(
        found,
        probe(),
        ninja=doctor.ninja_version(),
        sanitizer=doctor.sanitizer_version(),
    )
    if as_json:
        print_json({**diagnosis.to_json(), "environment": found.to_json()})
    else:
        put(terminal.doctor_page(diagnosis))
    if diagnosis.device is None:
        fail("no device can be used: see above", UNABLE)
