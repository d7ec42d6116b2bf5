"""The checksum of inputs: everything that may change in a tensor changes it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.referee.problem import checksum as module
from harness.referee.problem import checksum_cuda
from harness.referee.problem.checksum import KEYS, checksums

LENGTHS = [0, 1, 3, 4, 61, 4096, 4 * KEYS - 4, 4 * KEYS, 4 * KEYS + 1, 9 * KEYS + 2, 16 * KEYS + 16 * 1024 + 7]
"""In bytes: less than a word, a word, a run, some runs, with and without a rest."""


def data(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(count, generator=torch.Generator().manual_seed(count)) * 100).to(dtype)


def digest(tensor: torch.Tensor, *, salt: int | str | bytes) -> int:
    return int(checksums([tensor], salt=salt)[0])


def test_it_is_repeatable_and_keyed() -> None:
    x = data(1000)
    assert digest(x, salt=1) == digest(x.clone(), salt=1)
    assert digest(x, salt=1) != digest(x, salt=2)
    assert digest(x, salt="a") == digest(x, salt=b"a")


@settings(max_examples=60, deadline=None)
@given(first=st.integers(0, 2999), second=st.integers(0, 2999), bit=st.integers(0, 7), other_bit=st.integers(0, 7))
def test_flipping_one_or_two_bits_anywhere_is_seen(first: int, second: int, bit: int, other_bit: int) -> None:
    raw = data(750).view(torch.uint8).clone()
    before = digest(raw, salt=7)
    raw[first] ^= 1 << bit
    assert digest(raw, salt=7) != before
    raw[second] ^= 1 << other_bit
    assert (digest(raw, salt=7) != before) is ((first, bit) != (second, other_bit))


def test_changes_that_cancel_in_simple_sums_are_seen() -> None:
    x = data(4096, torch.float64)
    before = digest(x, salt=3)
    negated = x.clone()
    negated[[10, 11]] *= -1  # the top bits of two 64-bit words
    swapped = x.clone()
    swapped[[10, 11]] = x[[11, 10]]
    rolled = x.roll(KEYS % 4096 + 1)
    assert len({before, *(digest(t, salt=3) for t in (negated, swapped, rolled, x.flip(0)))}) == 5


@pytest.mark.parametrize("count", [0, 1, 3, 4 * KEYS - 4, 4 * KEYS, 4 * KEYS + 1, 9 * KEYS + 2])
def test_every_length_has_its_last_byte_covered(count: int) -> None:
    raw = torch.full((count,), 5, dtype=torch.uint8)
    before = digest(raw, salt=0)
    if count:
        raw[-1] = 6
        assert digest(raw, salt=0) != before


def test_slices_do_not_show_in_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    x = data(5 * KEYS + 17)
    before = digest(x, salt=1)
    monkeypatch.setattr(module, "TEMPORARY_BYTES", 8 * KEYS)
    assert digest(x, salt=1) == before


def test_strides_and_addresses_do_not_count() -> None:
    x = data(600).reshape(20, 30)
    assert digest(x, salt=1) == digest(x.reshape(30, 20), salt=1)
    assert digest(x.T, salt=1) == digest(x.T.contiguous(), salt=1)
    raw = torch.arange(41, dtype=torch.int8)
    assert digest(raw[1:], salt=1) == digest(raw[1:].clone(), salt=1)


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.int8, torch.int64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64],
)
def test_every_dtype(dtype: torch.dtype) -> None:
    x = torch.ones(33).to(dtype)
    other = x.clone()
    other.view(torch.uint8)[-1] ^= 1
    assert digest(x, salt=1) != digest(other, salt=1)


def test_tensors_asked_for_together_have_the_checksums_that_each_has_alone() -> None:
    held = [data(10), data(3 * KEYS + 5).to(torch.float16), torch.zeros(0), data(77).view(7, 11).T]
    assert checksums(held, salt=1).tolist() == [digest(tensor, salt=1) for tensor in held]
    assert checksums([], salt=1).tolist() == []


LAUNCHER = """
torch::Tensor checksums(torch::Tensor table, torch::Tensor keys, torch::Tensor second, int64_t rows, int64_t runs) {
    auto sums = torch::zeros({runs}, keys.options()), found = torch::zeros({table.size(0)}, keys.options());
    const long long *spans = (const long long *)table.data_ptr<int64_t>();
    auto *held = (unsigned long long *)sums.data_ptr<int64_t>(), *out = (unsigned long long *)found.data_ptr<int64_t>();
    const int64_t count = keys.numel();
    run_sums<<<dim3(count / PIECE, rows), 256>>>(spans, table.size(0), (const long long *)keys.data_ptr<int64_t>(),
                                                 count, held);
    span_sums<<<table.size(0), 256>>>(spans, (const long long *)second.data_ptr<int64_t>(), count, held, out);
    return found;
}
"""

RUN_IT = """
import json, sys, torch
from pathlib import Path
from harness.referee.problem import checksum as digest, checksum_cuda as digest_kernel
from tests.support.hostcuda_loader import load
source, lengths, folder = sys.argv[1:]
declared = "torch::Tensor checksums(torch::Tensor, torch::Tensor, torch::Tensor, int64_t, int64_t);"
module = load(source, declared, ["checksums"], checked=False, folder=Path(folder))
held = [torch.arange(1, count + 1).mul_(2654435761).to(torch.uint8) for count in json.loads(lengths)]
spans = tuple((tensor.data_ptr() if tensor.numel() else 0, tensor.numel()) for tensor in held)
run_bytes, seed = 4 * digest.KEYS, digest._seed(5)
runs = [max(1, -(-size // run_bytes)) for _, size in spans]
rows = [[address, size, sum(runs[:number])] for number, (address, size) in enumerate(spans)]
table, keys = torch.tensor(rows), [digest._keys(seed, level, "cpu") for level in (0, 1)]
found = [module.checksums(table.cuda(), keys[0].cuda(), keys[1].cuda(), y, sum(runs)).tolist() for y in (1, 3)]
print(json.dumps([*found, digest.checksums(held, salt=5).tolist()]))
"""


def test_the_kernels_executed_on_the_cpu_give_the_same_values(tmp_path: Path) -> None:
    source = (
        f"#include <torch/extension.h>\n#define PIECE {checksum_cuda._PIECE_WORDS}ll\n"
        + checksum_cuda._SOURCE
        + LAUNCHER
    )
    command = [sys.executable, "-c", RUN_IT, source, json.dumps(LENGTHS), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    one_row, three_rows, expected = json.loads(done.stdout.splitlines()[-1])
    assert one_row == expected
    assert three_rows == expected
    assert len(set(expected)) == len(LENGTHS)


@pytest.mark.gpu
def test_the_gpu_gives_the_same_values() -> None:
    assert checksum_cuda.load(torch.cuda.current_device()) is not None
    held = [torch.randint(0, 256, (count,), dtype=torch.uint8) for count in LENGTHS]
    held += [data(3 * KEYS + 5), data(600).view(20, 30).T, data(41).view(torch.uint8)[1:]]
    assert checksums([tensor.cuda() for tensor in held], salt=1).tolist() == checksums(held, salt=1).tolist()
