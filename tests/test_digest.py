"""The checksum of inputs: everything that may change in a tensor changes it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import digest as module
from harness.digest import KEYS, digest


def data(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(count, generator=torch.Generator().manual_seed(count)) * 100).to(dtype)


def test_it_is_repeatable_and_keyed() -> None:
    x = data(1000)
    assert digest(x, salt=1) == digest(x.clone(), salt=1)
    assert digest(x, salt=1) != digest(x, salt=2)
    assert digest(x, salt="a") == digest(x, salt=b"a")
    assert len(digest(x, salt=1)) == 16


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
    assert before != digest(torch.full((count + 1,), 5, dtype=torch.uint8), salt=0)
    if count:
        raw[-1] = 6
        assert digest(raw, salt=0) != before


def test_slices_do_not_show_in_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    x = data(5 * KEYS + 17)
    before = digest(x, salt=1)
    monkeypatch.setattr(module, "TEMPORARY_BYTES", 8 * KEYS)
    assert digest(x, salt=1) == before


def test_dtype_and_shape_count_but_strides_and_addresses_do_not() -> None:
    x = data(600).reshape(20, 30)
    assert digest(x, salt=1) != digest(x.reshape(30, 20), salt=1)
    assert digest(x, salt=1) != digest(x.view(torch.int32), salt=1)
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


@pytest.mark.gpu
def test_the_gpu_gives_the_same_value() -> None:
    x = data(3 * KEYS + 5)
    assert digest(x.cuda(), salt=1) == digest(x, salt=1)
