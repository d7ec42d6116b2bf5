"""Ask nvcc whether it accepts CUDA sources.

Usage: `python ask_nvcc.py FOLDER INCLUDE TYPES TOOLKIT COMMAND ...`.

Runs in the builder's sandbox, before the host device's compiler. COMMAND compiles the CUDA units in FOLDER as for a
GPU. If nvcc refuses them, its messages and exit code are this script's. INCLUDE holds the host device's headers, and
TYPES the types of libraries that torch's headers name and a CUDA toolkit may not contain; TOOLKIT is the toolkit's
include folder. An error that only shows that the toolkit is incomplete is no verdict on the sources.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

REFUSED = "[harness] nvcc refuses the CUDA sources"
"""Line that precedes nvcc's messages in a log."""

_MISSING_HEADER = re.compile(r"^(\S+):\d+:\d+: fatal error: (\S+): No such file or directory", re.M)
_OF_A_LIBRARY = re.compile(r"^.*\berror\b.*[\"‘'](cu(?:blas|sparse|solver)\w*)", re.M | re.I)


def missing_of_toolkit(log: str, include: Path, types: Path, toolkit: Path) -> str | None:
    """Return what the CUDA toolkit does not contain, if a log of nvcc fails for it.

    Args:
        log: nvcc's messages.
        include: The host device's headers, which replace the toolkit's.
        types: The headers that declare types of libraries only.
        toolkit: The toolkit's include folder.

    Returns:
        Its name; None if the sources are at fault.
    """
    for place, header in _MISSING_HEADER.findall(log):
        if Path(place).is_absolute() or ((include / header).is_file() and not (toolkit / header).is_file()):
            return str(header)
    found = _OF_A_LIBRARY.search(log)
    if found is None:
        return None
    library = found[1].lower()[: len("cublas")]
    headers = [path.name for path in types.glob("*.h") if path.name.startswith(library)]
    return next((name for name in headers if not (toolkit / name).is_file()), None)


def main(folder: Path, include: Path, types: Path, toolkit: Path, command: list[str]) -> int:
    """Run `command` in `folder`; 0 unless nvcc refuses the sources."""
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    log = done.stdout.decode(errors="replace")
    if done.returncode == 0:
        return 0
    if (name := missing_of_toolkit(log, include, types, toolkit)) is not None:
        sys.stdout.write(f"[harness] nvcc has no verdict: the CUDA toolkit does not contain {name}\n")
        return 0
    sys.stdout.write(f"{REFUSED}\n{log}")
    return done.returncode


if __name__ == "__main__":
    _folder, _include, _types, _toolkit = (Path(word) for word in sys.argv[1:5])
    raise SystemExit(main(_folder, _include, _types, _toolkit, sys.argv[5:]))
