"""Indices out of range are refused before an operator sees them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from harness.referee.soundness.index_bounds import IndexBounds, _indexed

TABLE = torch.arange(24.0).reshape(8, 3)

OPERATORS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "index": lambda table, index: table[index],
    "index, second": lambda table, index: table.T[:, index],
    "index_put": lambda table, index: table.clone().index_put_((index,), table.new_zeros(())),
    "gather": lambda table, index: table.gather(0, index[:, None]),
    "index_select": lambda table, index: table.index_select(0, index),
    "scatter": lambda table, index: table.scatter(0, index[:, None], 1.0),
    "index_add": lambda table, index: table.index_add(0, index, table[: len(index)]),
    "embedding": lambda table, index: F.embedding(index, table),
    "embedding_bag": lambda table, index: F.embedding_bag(index[None], table),
    "take": lambda table, index: table.take(index * 3),
    "nll_loss": lambda table, index: F.nll_loss(table.T.contiguous(), index),
    "cross_entropy": lambda table, index: F.cross_entropy(table.T.contiguous(), index),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", OPERATORS)
def test_indices_out_of_range_do_not_reach_the_gpu(name: str) -> None:
    table = TABLE.cuda()
    with IndexBounds():
        within = OPERATORS[name](table, torch.tensor([0, 7, 3], device="cuda"))
        with pytest.raises(IndexError, match=r"to 8|to 24"):
            OPERATORS[name](table, torch.tensor([0, 8, 3], device="cuda"))
    torch.cuda.synchronize()
    assert torch.equal(within, OPERATORS[name](table, torch.tensor([0, 7, 3], device="cuda")))


def test_what_counts_as_out_of_range() -> None:
    """The bounds of each operator, without a GPU."""
    index = torch.tensor([1])
    assert [row[1:] for row in _indexed("index", {"self": TABLE, "indices": [None, index]})] == [(3, -3)]
    assert [row[1:] for row in _indexed("gather", {"self": TABLE, "dim": -2, "index": index})] == [(8, 0)]
    assert [row[1:] for row in _indexed("embedding", {"weight": TABLE, "indices": index})] == [(8, 0)]
    assert [row[1:] for row in _indexed("take", {"self": TABLE, "index": index})] == [(24, -24)]
    assert list(_indexed("index", {"self": TABLE, "indices": [TABLE > 1]})) == []
    assert list(_indexed("index_fill", {"self": torch.tensor(1.0), "dim": 0, "index": index})) == [(index, 1, 0)]
    assert list(_indexed("add", {"self": TABLE, "other": index})) == []
    ((counted, size, least),) = _indexed("nll_loss_forward", {"self": TABLE, "target": torch.tensor([-100, 2])})
    assert (counted.tolist(), size, least) == ([2], 3, 0)
