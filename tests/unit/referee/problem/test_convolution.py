"""Float64 convolutions as matrix products equal torch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from harness.referee.problem import convolution
from harness.referee.problem.convolution import MatrixConvolutions

PLAIN = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}

ON_A_GPU = pytest.param("cuda", marks=pytest.mark.gpu)


def checked(kind: Any, x: torch.Tensor, weight: torch.Tensor, *rest: Any, **more: Any) -> None:
    """Compare with torch's own convolution, to the rounding of sums of this length."""
    expected = kind(x, weight, *rest, **more)
    with torch.no_grad(), MatrixConvolutions() as mode:
        found = kind(x, weight, *rest, **more)
    assert mode.used
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


def normal(*shape: int, device: str = "cpu") -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, device=device)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, list[list[int]], dict[str, Any], int]:
    """A kind, shapes of input, weight and bias, the other arguments, and bytes of the workspace."""
    count = draw(st.integers(1, 3))
    transposed = draw(st.booleans())
    groups, into, out_of = (draw(st.integers(1, 3)) for _ in range(3))
    each = lambda most, least=1: [draw(st.integers(least, most)) for _ in range(count)]  # noqa: E731
    kernel, stride, dilation, padding = each(3), each(3), each(3), each(2, 0)
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    extents = [max(s - 2 * p, 1) + draw(st.integers(0, 4)) for s, p in zip(spans, padding, strict=True)]
    more: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    shapes = [[draw(st.integers(1, 3)), groups * into, *extents], [groups * out_of, into, *kernel]]
    if transposed:
        padding = [
            min(p, ((e - 1) * s + n - 1) // 2) for p, e, s, n in zip(padding, extents, stride, spans, strict=True)
        ]
        padded = [draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)]
        more |= {"padding": padding, "output_padding": padded}
        shapes[1] = [groups * into, out_of, *kernel]
    if draw(st.booleans()):
        shapes.append([groups * out_of])
    return (TRANSPOSED if transposed else PLAIN)[count], shapes, more, draw(st.sampled_from([1, 2000, 2**29]))


@pytest.mark.parametrize("device", ["cpu", ON_A_GPU])
def test_every_kind_gives_the_values_of_torch_s_own(device: str) -> None:
    @settings(max_examples=300, deadline=None)
    @given(cases())
    def holds(case: tuple[Any, list[list[int]], dict[str, Any], int]) -> None:
        kind, shapes, more, workspace = case
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(convolution, "WORKSPACE_BYTES", workspace)
            checked(kind, *(normal(*shape, device=device) for shape in shapes), **more)

    holds()


def test_other_types_keep_torch_s_own_convolution() -> None:
    x, weight = torch.randn(1, 2, 5), torch.randn(3, 2, 2)
    with MatrixConvolutions() as mode:
        found = functional.conv1d(x, weight)
    assert not mode.used
    assert torch.equal(found, functional.conv1d(x, weight))


@pytest.mark.gpu
def test_on_a_gpu_the_columns_of_large_samples_stay_within_the_workspace() -> None:
    x, weight = normal(2, 16, 128, 128, 64, device="cuda"), normal(8, 16, 3, 3, 3, device="cuda")  # columns of 3.6 GB
    with torch.no_grad(), MatrixConvolutions():
        functional.conv3d(x[:1, :, :4, :4, :4], weight)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        output = functional.conv3d(x, weight, padding=1)
        torch.cuda.synchronize()
    room = output.nbytes + x[:1].nbytes * 1.1 + convolution.WORKSPACE_BYTES
    assert torch.cuda.max_memory_allocated() - before < room
