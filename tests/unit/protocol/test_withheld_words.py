"""Words held back: decoys where the truth was, valid for their dtype, and nothing lost when they are written back."""

from __future__ import annotations

import random

import pytest
import torch

from harness.protocol.withheld_words import (
    NAN_WORDS,
    WORD_BYTES,
    WORDS_PER_INPUT,
    Choice,
    HeldBack,
    Span,
    choose,
    writers,
)


def arena_of(values: torch.Tensor) -> torch.Tensor:
    raw = values.view(torch.uint8) if values.dtype is not torch.uint8 else values
    return raw[: raw.numel() // WORD_BYTES * WORD_BYTES].view(torch.int32)


@pytest.mark.parametrize("dtype", sorted(NAN_WORDS, key=str), ids=str)
def test_floats_become_nan_and_come_back(dtype: torch.dtype) -> None:
    values = torch.randn(64).to(dtype)
    before, words = values.clone(), arena_of(values)
    held = HeldBack(words, [choose([Span(first=0, words=words.numel(), dtype=dtype)], random.Random(1))])
    held.mask([0])
    at = [place * WORD_BYTES // values.element_size() for place, _ in held.words(0)]
    assert len(set(held.words(0))) == WORDS_PER_INPUT
    assert all(bool(torch.isnan(values[place])) for place in at)
    untouched = torch.isnan(values).logical_not()
    assert torch.equal(values[untouched], before[untouched])
    held.restore(0)
    assert torch.equal(values, before)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_decoys_of_other_tensors_are_values_that_they_hold(dtype: torch.dtype) -> None:
    values = torch.randint(0, 2 if dtype is torch.bool else 50, (256,)).to(dtype)
    before, words = values.clone(), arena_of(values)
    held = HeldBack(words, [choose([Span(first=0, words=words.numel(), dtype=dtype)], random.Random(2))])
    seen = set(words.tolist())
    held.mask([0])
    assert set(words.tolist()) <= seen
    held.restore(0)
    assert torch.equal(values, before)


def test_an_int64_stays_within_what_an_index_may_be() -> None:
    values = torch.randint(0, 1000, (512,))
    words = values.view(torch.int32)
    for seed in range(20):
        held = HeldBack(words, [choose([Span(first=0, words=1024, dtype=torch.int64)], random.Random(seed))])
        held.mask([0])
        assert 0 <= int(values.min()) <= int(values.max()) < 1000
        held.restore(0)


def test_the_other_side_needs_places_and_values_only() -> None:
    values = torch.randn(1000)
    before, words = values.clone(), values.view(torch.int32)
    held = HeldBack(words, [choose([Span(first=100, words=800, dtype=torch.float32)], random.Random(3))])
    held.mask([0])
    assert not torch.equal(values, before)
    assert all(100 <= place < 900 for place, _ in held.words(0))
    late = held.words(0)
    first, none, second = writers(words, [late[:3], [], late[3:]])
    assert first is not None
    assert second is not None
    assert none is None
    first()
    assert not torch.equal(values, before)
    second()
    assert torch.equal(values, before)


def test_each_call_has_words_of_its_own() -> None:
    values = torch.randn(300)
    before, words = values.clone(), values.view(torch.int32)
    secret = random.Random(9)
    spans = [[Span(first=first, words=100, dtype=torch.float32)] for first in (0, 100)] + [[]]
    held = HeldBack(words, [choose(each, secret) for each in spans])
    held.mask([1, 2])
    assert torch.equal(values[:100], before[:100])
    assert int(torch.isnan(values[100:200]).sum()) == WORDS_PER_INPUT
    held.mask([2, 0, 1])
    assert int(torch.isnan(values).sum()) == 2 * WORDS_PER_INPUT
    held.restore(1)
    assert torch.equal(values[100:], before[100:])
    assert int(torch.isnan(values[:100]).sum()) == WORDS_PER_INPUT
    assert [before.view(torch.int32)[place] for place, _ in held.words(0)] == [value for _, value in held.words(0)]
    assert held.words(2) == ()


def test_tiny_and_empty_inputs_are_no_trouble() -> None:
    words = torch.arange(4, dtype=torch.int32)
    spans = [Span(first=0, words=0, dtype=torch.float32), Span(first=1, words=1, dtype=torch.float32)]
    choice = choose(spans, random.Random(4))
    assert choice.places == (1,)
    assert choose([Span(first=0, words=1, dtype=torch.float64)], random.Random(5)) == Choice(
        places=(), masks=(), dtypes=()
    )
    HeldBack(words, [choose([], random.Random(6))]).mask([0])
    assert words.tolist() == [0, 1, 2, 3]


def test_places_are_secret() -> None:
    span = [Span(first=0, words=10**6, dtype=torch.float32)]
    assert choose(span, random.Random(7)).places != choose(span, random.Random(8)).places


def test_decoys_are_other_words_of_the_same_input() -> None:
    span = Span(first=1000, words=100, dtype=torch.int64)
    chosen = choose([span], random.Random(1))
    assert chosen.masks
    for place, decoy in zip(chosen.places, chosen.masks, strict=True):
        assert isinstance(decoy, int)
        assert 1000 <= place < 1100
        assert 1000 <= decoy < 1100
        assert place % 2 == decoy % 2
