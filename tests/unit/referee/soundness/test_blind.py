"""Wrong answers made of the reference's outputs alone."""

from __future__ import annotations

import torch

from harness.referee.soundness.blind import _half, _tile, tile_of

OWN, OTHER = torch.full((4, 6), 1.0), torch.arange(24.0).reshape(4, 6) + 100.0


def test_half_an_output_is_kept_and_the_rest_is_zero_or_of_another_call() -> None:
    first = _half(zero=True, first=True)(OWN, OTHER)
    assert first is not None
    assert first.flatten().tolist() == [1.0] * 12 + [0.0] * 12
    second = _half(zero=False, first=False)(OWN, OTHER)
    assert second is not None
    assert second.flatten().tolist() == [*OTHER.flatten()[:12].tolist(), *[1.0] * 12]


def test_the_last_tile_is_zero_or_of_another_call() -> None:
    size = tile_of(4)
    zeroed = _tile(0, zero=True)(OWN, OTHER)
    assert zeroed is not None
    assert torch.equal(zeroed, torch.cat([OWN[: 4 - size], torch.zeros(size, 6)]))
    taken = _tile(0, zero=False)(OWN, OTHER)
    assert taken is not None
    assert torch.equal(taken, torch.cat([OWN[: 4 - size], OTHER[4 - size :]]))
