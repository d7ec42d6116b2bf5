"""Make a forward and its backward as one call.

Both sides: the contestant calls a solution like this, the referee the reference. The last argument of such a call has
the incoming gradients. The result is a dict: the forward's own result, and each gradient by its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from harness.protocol.messages import Gradients
from harness.protocol.tensor_tree import flatten, flatten_any, unflatten

FORWARD = "forward"
"""Key of the forward's own result."""

INCOMING = "grad of output"
"""Key of the incoming gradients in the last argument of a call."""

_READ = re.compile(r"output\['(?:forward|(grad of [^']*))'\]")

_BETWEEN: ContextVar[Callable[[], None] | None] = ContextVar("between", default=None)


@contextmanager
def between_passes(note: Callable[[], None]) -> Iterator[None]:
    """Call `note` between the forward and the backward of each call within the block."""
    token = _BETWEEN.set(note)
    try:
        yield
    finally:
        _BETWEEN.reset(token)


def forward_and_backward(
    forward: Callable[..., object],
    arguments: Sequence[object],
    gradients: Gradients,
    parameters: Sequence[torch.Tensor | None],
) -> dict[str, object]:
    """Call `forward`, then differentiate its result.

    Args:
        forward: The model.
        arguments: Its arguments, then a dict with the incoming gradients.
        gradients: What to return.
        parameters: The tensors of `gradients.parameters`; None for one that the model does not have.

    Returns:
        The forward's result, without history, and the gradients by name. A gradient is None if autograd finds no way
        from the outputs to its tensor.
    """
    leaves, tree = flatten(list(arguments[:-1]))
    incoming, _ = flatten(arguments[-1])
    for number in gradients.inputs:
        leaves[number] = leaves[number].detach().requires_grad_()
    with torch.enable_grad():
        result = forward(*unflatten(tree, leaves))
    if (note := _BETWEEN.get()) is not None:
        note()
    outputs, form = flatten_any(result)
    roots = [
        # A result of another shape fails for its shape, whatever its gradients are.
        (output, gradient if output.shape == gradient.shape else torch.zeros_like(output))
        for number, gradient in zip(gradients.outputs, incoming, strict=True)
        if number < len(outputs) and (output := outputs[number]).requires_grad
    ]
    wanted = [*(leaves[number] for number in gradients.inputs), *parameters]
    able = [number for number, leaf in enumerate(wanted) if leaf is not None and leaf.requires_grad]
    found: list[torch.Tensor | None] = [None] * len(wanted)
    if roots and able:
        tensors = [leaf for number in able if (leaf := wanted[number]) is not None]
        starts = [gradient for _, gradient in roots]
        of = torch.autograd.grad([output for output, _ in roots], tensors, starts, allow_unused=True)
        for number, gradient in zip(able, of, strict=True):
            found[number] = gradient
    # A value that can't be rebuilt fails for its structure.
    bare = result if form.opaque() else unflatten(form, [leaf.detach() for leaf in outputs])
    return {FORWARD: bare, **dict(zip(gradients.names, found, strict=True))}


def readable(text: str) -> str:
    """Name results in a text as readers know them: `output`, `grad of weight`."""
    return _READ.sub(lambda match: match[1] or "output", text)
