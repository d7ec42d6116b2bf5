"""Arithmetic on the host device gives a GPU's bits, and approximations come as close as documented.

`tests/hostcuda/arithmetic_probe.cu` says how `arithmetic_sm90.tsv` came about.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping

import pytest
import torch

from tests.support.paths import ROOT, TESTS

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the host device needs g++")

Rows = Mapping[str, tuple[str, list[int]]]
Allowed = Callable[[float, float, float], float]

HERE = TESTS / "hostcuda"
INTEGERS = {"f64": torch.int64, "f32": torch.int32, "f16": torch.int16, "bf16": torch.int16}
FLOATS = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
UNIT = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}

ULPS: dict[str, float] = {
    **dict.fromkeys(("expm1", "log", "log1p", "cube_root", "half_exp", "half_log", "half_rsqrt"), 2),
    **dict.fromkeys(("bfloat16_exp", "bfloat16_tanh", "frsqrt"), 1),
    **dict.fromkeys(("exp", "exp2", "sin", "cos", "tanh", "erf", "reverse_root", "fast_divide"), 3),
    **dict.fromkeys(("hypotenuse", "arctangent"), 4),
    **dict.fromkeys(("erfc", "power"), 5),
}
"""Units in the last place by which a GPU and a good libm may differ: the GPU's documented error, and one."""

NEAR_ZERO = 2.0**-21.4
"""Documented absolute error of fast logarithms, sines and cosines."""

OTHER: dict[str, Allowed] = {
    "fast_exp": lambda x, y, value: (3 + 1.2 * abs(x)) * 2.0**-23 * value,
    "fast_exp10": lambda x, y, value: (3 + 3 * abs(x)) * 2.0**-23 * value,
    "fast_log": lambda x, y, value: max(2 * NEAR_ZERO, 4 * 2.0**-23 * abs(value)),
    "fast_log2": lambda x, y, value: max(2 * NEAR_ZERO, 4 * 2.0**-23 * abs(value)),
    "fast_power": lambda x, y, value: (2 + abs(y * math.log2(x))) * 2.0**-21 * value,
    "gamma": lambda x, y, value: max(8 * 2.0**-23 * abs(value), 2.0**-20),
    # Beyond pi the error grows with the operand; there is no bound but that of a sine.
    "fast_sin": lambda x, y, value: 2 * NEAR_ZERO if abs(x) <= math.pi else 2.0,
    "fast_cos": lambda x, y, value: 2 * NEAR_ZERO if abs(x) <= math.pi else 2.0,
}

MODULO = {"modulo_by_any", "modulo_unsigned_by_any", "modulo_long_by_any", "seven_modulo_any"}
"""What is left of a division by zero is the dividend or all ones on a GPU, as the code around it comes out."""


def rows(text: str) -> Rows:
    split = (line.split("\t") for line in text.splitlines())
    return {name: (kind, [int(bits, 16) for bits in results]) for name, kind, *results in split}


EXPECTED = rows((HERE / "arithmetic_sm90.tsv").read_text())


RUN = """
from pathlib import Path
from torch.utils.cpp_extension import load_inline
module = load_inline(
    "arithmetic",
    cpp_sources="#include <string>\\nstd::string table();",
    cuda_sources=Path({source!r}).read_text(),
    functions=["table"],
)
Path({out!r}).write_text(module.table())
"""


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    folder = tmp_path_factory.mktemp("arithmetic")
    script, out = folder / "run.py", folder / "table.tsv"
    script.write_text(RUN.format(source=str(HERE / "arithmetic_probe.cu"), out=str(out)))
    command = [sys.executable, "-m", "tests.support.hostcuda_runner", str(script)]  # the host device changes torch
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return rows(out.read_text())


def numbers(kind: str, bits: list[int]) -> list[float]:
    width = 8 * torch.empty(0, dtype=INTEGERS[kind]).element_size()
    signed = [value - (1 << width) if value >> (width - 1) else value for value in bits]
    return torch.tensor(signed, dtype=INTEGERS[kind]).view(FLOATS[kind]).double().tolist()


def exact(name: str) -> bool:
    return name not in ULPS and name not in OTHER


@pytest.mark.parametrize("name", [name for name in EXPECTED if exact(name)])
def test_a_result_has_the_bits_of_a_gpus(name: str, computed: Rows) -> None:
    (kind, ours), (_, theirs) = computed[name], EXPECTED[name]
    if name in MODULO:
        divisors = computed["operand_divisor"][1]
        ours, theirs = ([bits for bits, by in zip(all_, divisors, strict=True) if by] for all_ in (ours, theirs))
    if kind != "int":  # the bits of a NaN are not compared
        nan = [math.isnan(a) and math.isnan(b) for a, b in zip(numbers(kind, ours), numbers(kind, theirs), strict=True)]
        ours, theirs = ([0 if n else bits for n, bits in zip(nan, all_, strict=True)] for all_ in (ours, theirs))
    assert ours == theirs


@pytest.mark.parametrize("name", [name for name in EXPECTED if not exact(name)])
def test_an_approximation_is_as_close_as_documented(name: str, computed: Rows) -> None:
    (kind, ours), (_, theirs) = computed[name], EXPECTED[name]
    operands = (numbers(*computed[f"operand_{letter}"]) for letter in "xy")
    far = []
    for x, y, one, other in zip(*operands, numbers(kind, ours), numbers(kind, theirs), strict=True):
        if (math.isnan(one) and math.isnan(other)) or one == other:
            continue
        if name in OTHER:
            allowed = OTHER[name](x, y, abs(other))
        else:
            allowed = ULPS[name] * UNIT[kind] * max(abs(one), abs(other))
        if not abs(one - other) <= allowed:
            far.append((x, y, one, other))
    assert not far


def test_nothing_is_left_out(computed: Rows) -> None:
    assert [name for name in computed if not name.startswith("operand_")] == list(EXPECTED)
