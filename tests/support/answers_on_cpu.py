"""Judges the answers of `answers` with the comparison's kernels executed on the CPU: `answers_on_cpu.py FOLDER`.

Prints a JSON object: for each problem the disagreements, those on stressed inputs, and how many pairs of right answers
were compared alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from harness.core.choices import DeviceKind
from harness.referee.correctness import compare_float_cuda
from tests.support.answers import PROBLEMS, STRESSED, compared_alone, disagreements
from tests.support.comparison_on_cpu import install


def judged(name: str) -> tuple[list[str], list[str], int]:
    text, host = PROBLEMS[name], DeviceKind.HOST
    stressed = disagreements(text, host, STRESSED) if name in ("too large", "one number") else []
    return disagreements(text, host), stressed, compared_alone(text, host)


if __name__ == "__main__":
    torch.set_num_threads(1)
    install(Path(sys.argv[1]), blocks=2, types=tuple(compare_float_cuda._KINDS))
    sys.stdout.write(json.dumps({name: judged(name) for name in PROBLEMS}) + "\n")
