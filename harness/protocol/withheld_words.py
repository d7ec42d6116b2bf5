"""A few words of each input that reach the contestant only with the call that reads them.

Imports torch alone. Trusted side chooses and masks; both sides write the true words, in the stream of the call, after
the caches were flushed and before the clock starts. While a flush runs, the forward is being submitted behind it, and
everything that it starts on a stream of its own runs at once, beside the flush and outside of the clock: unless what it
reads is not there yet. Work that waits for the stream that it was called on never notices.

A word is 4 bytes: one float32, two halves of 16 bits, half of a float64 or int64. In floating tensors the decoy is NaN,
which nearly every operation passes on; in others it is another word of the same tensor, so that indices stay valid.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

WORD_BYTES = 4
WORDS_PER_INPUT = 4

NAN_WORDS = {
    torch.float32: 0x7FC00000,
    torch.float16: 0x7E007E00,
    torch.bfloat16: 0x7FC07FC0,
    torch.float64: 0x7FF80000,
    torch.complex64: 0x7FC00000,
}
"""NaN as a word; of a float64 the upper one."""

_EVERY_SECOND = {torch.float64: 1, torch.int64: 0}
"""Which word of two is held back: that with the exponent, and that with all there is of a small integer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Where one input lies: its first word in the arena, how many whole words it has, and its dtype."""

    first: int
    words: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Places held back (words of the arena), and for each the place whose word masks it (None: NaN)."""

    places: tuple[int, ...]
    masks: tuple[int | None, ...]
    dtypes: tuple[torch.dtype, ...]


def choose(spans: Sequence[Span], secret: random.Random) -> Choice:
    """Secret places in each input, spread over all of it."""
    places: list[int] = []
    masks: list[int | None] = []
    dtypes: list[torch.dtype] = []
    for span in spans:
        step = 2 if span.dtype in _EVERY_SECOND else 1
        count, first = span.words // step, span.first + _EVERY_SECOND.get(span.dtype, 0)
        for place in secret.sample(range(count), min(WORDS_PER_INPUT, count)):
            places.append(first + place * step)
            masks.append(None if span.dtype in NAN_WORDS else first + secret.randrange(count) * step)
            dtypes.append(span.dtype)
    return Choice(places=tuple(places), masks=tuple(masks), dtypes=tuple(dtypes))


class HeldBack:
    """The words held back of some calls' inputs, known from now on, of which each call has its own number.

    All of them come to the device in one copy, and what they hold comes back in one.
    """

    def __init__(self, words: torch.Tensor, choices: Sequence[Choice]) -> None:
        """`words` is the arena as int32 (1-dimensional, on its device), filled as drawn; `choices` is one a call."""
        self._words = words
        places = [place for choice in choices for place in choice.places]
        masks = [mask for choice in choices for mask in choice.masks]
        dtypes = [dtype for choice in choices for dtype in choice.dtypes]
        ends = list(itertools.accumulate(len(choice.places) for choice in choices))
        self._spans = [slice(begin, end) for begin, end in itertools.pairwise([0, *ends])]
        self._places = places
        nans = [NAN_WORDS[dtype] if mask is None else 0 for mask, dtype in zip(masks, dtypes, strict=True)]
        others = [place if mask is None else mask for place, mask in zip(places, masks, strict=True)]
        table = torch.tensor([places, others, nans], dtype=torch.int64).to(words.device)
        self._index = table[0]
        self._true, taken = words.index_select(0, table[:2].reshape(-1)).view(2, len(places))
        self._decoys = torch.where(table[2] != 0, table[2].to(torch.int32), taken)
        self._values: list[int] = self._true.tolist()

    def words(self, number: int) -> tuple[tuple[int, int], ...]:
        """Place (a word of the arena) and true value (as int32) of each word held back of call `number`."""
        span = self._spans[number]
        return tuple(zip(self._places[span], self._values[span], strict=True))

    def mask(self, numbers: Sequence[int]) -> None:
        """Put the decoys of these calls in place."""
        if len(set(numbers)) == len(self._spans):
            _write(self._words, self._index, self._decoys)
            return
        for number in numbers:
            span = self._spans[number]
            _write(self._words, self._index[span], self._decoys[span])

    def restore(self, number: int) -> None:
        """Write the true words of call `number`, in the current stream."""
        span = self._spans[number]
        _write(self._words, self._index[span], self._true[span])


def writers(words: torch.Tensor, late: Sequence[Sequence[tuple[int, int]]]) -> list[Callable[[], None] | None]:
    """For each call what writes its `late` words (place, value) into `words`; None where there are none.

    All of them come to the device in one copy.
    """
    index = torch.tensor([place for call in late for place, _ in call], dtype=torch.int64, device=words.device)
    values = torch.tensor([value for call in late for _, value in call], dtype=torch.int32, device=words.device)
    made: list[Callable[[], None] | None] = []
    first = 0
    for call in late:
        span = slice(first, first := first + len(call))
        made.append(functools.partial(_write, words, index[span], values[span]) if call else None)
    return made


def _write(words: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> None:
    words.index_copy_(0, index, values)
