"""A call's outputs: what is said of them, and what is copied to the referee's buffers."""

from __future__ import annotations

import pytest
import torch

from harness.untrusted.contestant.outputs import OutputSnapshot


def slots(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.full(shape, -7.0) for shape in shapes]


def test_outputs_are_described_and_copied() -> None:
    buffers = slots((2, 3), (4,))
    snapshot = OutputSnapshot(buffers, None)
    result = {"a": torch.ones(2, 3), "b": [torch.arange(4.0)]}
    snapshot.take(result)
    assert snapshot.result is result
    assert [(leaf.type, leaf.shape, leaf.dtype, leaf.device) for leaf in snapshot.leaves] == [
        ("Tensor", (2, 3), "float32", "cpu"),
        ("Tensor", (4,), "float32", "cpu"),
    ]
    assert snapshot.leaves[0].address == result["a"].data_ptr()  # type: ignore[union-attr]
    assert torch.equal(buffers[0], torch.ones(2, 3))
    assert torch.equal(buffers[1], torch.arange(4.0))


@pytest.mark.parametrize(
    "wrong", [torch.ones(3, 2), torch.ones(2, 3, dtype=torch.float64), torch.ones(2, 3).to_sparse(), torch.ones(1, 3)]
)
def test_a_leaf_of_another_shape_type_or_layout_is_told_and_not_copied(wrong: torch.Tensor) -> None:
    (buffer,) = buffers = slots((2, 3))
    snapshot = OutputSnapshot(buffers, None)
    snapshot.take(wrong)
    assert snapshot.leaves[0].shape == tuple(wrong.shape)
    assert torch.equal(buffer, torch.full((2, 3), -7.0)), "no broadcast, no conversion"
    if wrong.is_sparse:
        assert snapshot.leaves[0].address == 0


def test_more_outputs_than_buffers_are_told_too() -> None:
    snapshot = OutputSnapshot(slots((2,)), None)
    snapshot.take((torch.ones(2), torch.ones(5)))
    assert [leaf.shape for leaf in snapshot.leaves] == [(2,), (5,)]


def test_methods_that_the_solution_replaced_do_not_reach_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    def lie(*arguments: object) -> object:
        raise AssertionError("the solution's code ran while its output was read")

    (buffer,) = buffers = slots((2,))
    result = torch.ones(2)
    address = result.data_ptr()
    for name in ("copy_", "data_ptr", "size", "clone", "__torch_function__"):
        monkeypatch.setattr(torch.Tensor, name, lie)
    snapshot = OutputSnapshot(buffers, None)
    snapshot.take(result)
    monkeypatch.undo()
    assert snapshot.leaves[0].address == address
    assert torch.equal(buffer, torch.ones(2))


def test_a_subclass_of_tensor_is_no_output() -> None:
    class Own(torch.Tensor):
        pass

    snapshot = OutputSnapshot(slots((2,)), None)
    snapshot.take(torch.ones(2).as_subclass(Own))
    assert snapshot.leaves == ()
    assert snapshot.tree.opaque()


@pytest.mark.parametrize(
    "result",
    [torch.ones(3, 2).T, torch.ones(2, 3, dtype=torch.complex64).conj(), torch.ones(4, 6)[::2, ::2]],
    ids=["transposed", "conjugated", "strided"],
)
def test_another_layout_is_put_in_order_within_the_call_and_said(result: torch.Tensor) -> None:
    snapshot = OutputSnapshot([torch.empty(2, 3, dtype=result.dtype)], None)
    ordered = snapshot.in_order(result, [0])
    assert isinstance(ordered, torch.Tensor)
    assert ordered.is_contiguous()
    assert not ordered.is_conj()
    assert torch.equal(ordered, result)
    snapshot.take(ordered)
    assert not snapshot.leaves[0].contiguous


def test_what_lies_in_order_already_is_the_same_object() -> None:
    snapshot = OutputSnapshot(slots((2, 3)), None)
    plain, opaque = torch.ones(2, 3), object()
    assert snapshot.in_order(plain, [0]) is plain
    assert snapshot.in_order((plain,), [0]) == (plain,)
    assert snapshot.in_order(opaque, [0]) is opaque
    snapshot.take(plain)
    assert snapshot.leaves[0].contiguous


def test_coercion_keeps_where_the_solution_left_each_tensor() -> None:
    snapshot = OutputSnapshot([torch.empty(2, device="cpu")], None)
    moved = snapshot.coerce((torch.ones(2),))
    snapshot.take(moved)
    assert snapshot.leaves[0].device == "cpu"
    three = (torch.ones(2), torch.ones(2))
    assert OutputSnapshot([torch.empty(2)], None).coerce(three) is three, "another number of outputs: left as it is"
