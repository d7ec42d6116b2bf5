"""Withhold a few words of each input until the timed call begins.

Both sides. The referee chooses words and replaces them by decoys; the contestant's stream writes the true words after
the cache flush and before the clock starts. So work that starts early, on another stream, reads decoys. A word is
4 bytes. See guides/design/withheld_inputs.md.
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
"""NaN as a word, by dtype; for float64 it is the upper word."""

_EVERY_SECOND = {torch.float64: 1, torch.int64: 0}
"""Which of two words is withheld (little-endian): for float64 the one with the exponent, for int64 the lower one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Place of one input in the arena.

    `first` is its first word, `words` its number of whole words.
    """

    first: int
    words: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Withheld words of one call.

    Attributes:
        places: Withheld words, as indices of words in the arena.
        masks: For each place, the word that replaces it; None is NaN.
        dtypes: For each place, the input's dtype.
    """

    places: tuple[int, ...]
    masks: tuple[int | None, ...]
    dtypes: tuple[torch.dtype, ...]


def choose(spans: Sequence[Span], secret: random.Random) -> Choice:
    """Choose up to `WORDS_PER_INPUT` random words in each input.

    Args:
        spans: The inputs of one call.
        secret: Random generator that the contestant can't predict.
    """
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
    """Withheld words of several calls, with their true values.

    Calls are identified by their number.

    One copy transfers all places to the device, and one copy returns all values.
    """

    def __init__(self, words: torch.Tensor, choices: Sequence[Choice]) -> None:
        """Read the true values.

        Args:
            words: The arena as a 1-dimensional int32 tensor on its device, filled with the true inputs.
            choices: Withheld words of each call.
        """
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
        """Return place and true value of each withheld word of call `number`.

        A place is a word of the arena; a value is an int32.
        """
        span = self._spans[number]
        return tuple(zip(self._places[span], self._values[span], strict=True))

    def mask(self, numbers: Sequence[int]) -> None:
        """Write the decoys of these calls."""
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
    """Return a function for each call that writes its true words.

    One copy transfers the words of all calls to the device.

    Args:
        words: The arena as a 1-dimensional int32 tensor on its device.
        late: Place and value of the words of each call.

    Returns:
        One function for each call; None if the call has no words.
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
