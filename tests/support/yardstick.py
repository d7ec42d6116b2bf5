"""Honest algorithms and small mistakes, emulated in torch, and their judgement.

Each case is a small problem with answers that are right in some arithmetic, and answers with one small mistake.
`tests/unit/referee/correctness/test_yardstick.py` asserts the verdicts, `tests/benchmarks/yardstick.py` writes the
table.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F

from harness.core.choices import PrecisionClass
from harness.core.problem import InputRules
from harness.referee.correctness.rounding_evidence import rounded_to
from harness.referee.correctness.tolerance import (
    UNLIMITED,
    ErrorLimits,
    LongSum,
    TensorComparison,
    ToleranceVerdict,
    compare,
    judge,
    limits_for,
    sensitivity_of,
)
from harness.referee.problem.longest_sum import LongestSum
from harness.referee.problem.rounding import Rounding, rounded
from harness.referee.problem.stress_variants import LARGE_VALUES, STRUCTURED, transform

Tensors = Sequence[torch.Tensor]
Compute = Callable[..., torch.Tensor]

DRAWS = 2
"""Draws of each variant."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A problem with right and wrong answers.

    Attributes:
        inputs: Draws the problem's own inputs from a generator.
        reference: Computes the answer in the type of its arguments.
        honest: Right answers in float32, by algorithm.
        mistakes: Answers with one small mistake, by name.
        fixed: Numbers of the inputs that are weights: stress variants leave them alone.
    """

    inputs: Callable[[torch.Generator], list[torch.Tensor]]
    reference: Compute
    honest: Mapping[str, Compute]
    mistakes: Mapping[str, Compute]
    fixed: tuple[int, ...] = ()
    variants: tuple[str, ...] = field(default=InputRules().variants)

    def draws(self) -> Iterator[tuple[str, list[torch.Tensor]]]:
        """Yield the variant and the inputs of every call."""
        for number, variant in enumerate(v for v in ("own", *self.variants) for _ in range(DRAWS)):
            torch.manual_seed(number)
            inputs = self.inputs(torch.Generator().manual_seed(7 * number))
            free = [(str(n), leaf) for n, leaf in enumerate(inputs) if n not in self.fixed]
            transform(variant, free, seed=number)
            yield variant, inputs

    @functools.cached_property
    def terms(self) -> int:
        """Terms of the reference's longest sum."""
        with LongestSum() as counting:
            self.reference(*self.inputs(torch.Generator().manual_seed(0)))
        return int(counting.terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a case: its inputs, truth and limits for a class."""

    case: Case
    variant: str
    inputs: list[torch.Tensor]
    required: PrecisionClass
    truth: torch.Tensor
    own: torch.Tensor
    reference: TensorComparison

    def judge(self, compute: Compute) -> ToleranceVerdict:
        """Judge an answer as the referee does."""
        answer = compute(*self.inputs)
        return self.judge_tensor(answer)

    @property
    def longest(self) -> LongSum:
        return LongSum(terms=self.case.terms, alike=self.variant in (STRUCTURED, LARGE_VALUES))

    def limits(self) -> ErrorLimits:
        return limits_for(self.required, self.reference, longest=self.longest)

    def nearby(self, precision: PrecisionClass) -> Iterator[tuple[float, list[torch.Tensor]]]:
        """Yield the truth of rounded inputs, as `Reference.nearby` does."""
        for way in Rounding:
            moved = [rounded(leaf, precision, way, 5 + number) for number, leaf in enumerate(self.inputs)]
            yield way.weight, [self.case.reference(*doubled(moved))]

    def judge_tensor(self, answer: torch.Tensor) -> ToleranceVerdict:
        found = compare(answer, self.truth, reference=self.own, limits=self.limits())
        references = [self.reference]
        sensitivity = sensitivity_of(
            [found],
            self.required,
            references=references,
            expected=[self.truth],
            nearby=self.nearby(self.required),
            longest=self.longest,
        )

        def near(precision: PrecisionClass) -> Iterator[list[torch.Tensor]]:
            return (leaves for _, leaves in itertools.islice(self.nearby(precision), 2))

        rounding = [None] if found.within(self.limits()) else [rounded_to(0, answer, self.truth, self.required, near)]
        return judge(
            [found],
            self.required,
            references=references,
            sensitivity=sensitivity,
            longest=self.longest,
            rounding=rounding,
        )


def calls(case: Case, required: PrecisionClass = PrecisionClass.FP32) -> Iterator[Call]:
    """Yield every call of a case."""
    for variant, inputs in case.draws():
        truth, own = case.reference(*doubled(inputs)), case.reference(*inputs)
        yield Call(
            case=case,
            variant=variant,
            inputs=inputs,
            required=required,
            truth=truth,
            own=own,
            reference=compare(own, truth, limits=UNLIMITED),
        )


def doubled(inputs: Tensors) -> list[torch.Tensor]:
    return [leaf.double() if leaf.is_floating_point() else leaf for leaf in inputs]


# Arithmetic of float32, emulated. Each sums or multiplies along the last dimension.


def one_accumulator(x: torch.Tensor) -> torch.Tensor:
    """Sum with one float32 accumulator, term after term."""
    total = torch.zeros(x.shape[:-1])
    for term in x.unbind(-1):
        total = total + term
    return total


def split(x: torch.Tensor, parts: int = 8) -> torch.Tensor:
    """Sum as split-k does: one accumulator for each part, then one over the parts."""
    size = -(-x.shape[-1] // parts)
    return one_accumulator(torch.stack([one_accumulator(piece) for piece in x.split(size, -1)], -1))


def pairwise(x: torch.Tensor) -> torch.Tensor:
    """Sum halves, recursively."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        rest = x[..., 2 * half :]
        x = torch.cat([x[..., :half] + x[..., half : 2 * half], rest], -1)
    return x[..., 0]


def kahan(x: torch.Tensor) -> torch.Tensor:
    """Sum with a compensated accumulator."""
    total, lost = torch.zeros(x.shape[:-1]), torch.zeros(x.shape[:-1])
    for term in x.unbind(-1):
        corrected = term - lost
        moved = total + corrected
        lost, total = (moved - total) - corrected, moved
    return total


def running_sum(x: torch.Tensor) -> torch.Tensor:
    """All partial sums of one float32 accumulator; torch's own accumulates in float64."""
    return torch.from_numpy(np.cumsum(x.numpy(), axis=-1, dtype=np.float32))


SUMS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "pairwise": pairwise,
    "one accumulator": one_accumulator,
    "split-k": split,
    "Kahan": kahan,
}


def fast(function: Callable[[torch.Tensor], torch.Tensor], units: Callable[[torch.Tensor], torch.Tensor]) -> Compute:
    """Return a fast-math function with the largest error that CUDA's guide states.

    The error alternates in sign; `units` are in the last place, of the argument.
    """

    def compute(x: torch.Tensor) -> torch.Tensor:
        sign = torch.ones(x.numel(), dtype=torch.float64)
        sign[::2] = -1
        exact = function(x.double())
        return (exact * (1 + sign.view(x.shape) * units(x.double()) * 2.0**-23)).float()

    return compute


fast_exp = fast(torch.exp, lambda x: 2 + (1.173 * x.abs().clamp(max=200)).floor())
fast_divide = fast(torch.reciprocal, lambda x: torch.full_like(x, 2.0))
fast_rsqrt = fast(torch.rsqrt, lambda x: torch.full_like(x, 2.0))


def fast_log(x: torch.Tensor) -> torch.Tensor:
    """`__logf`: 2**-21.41 absolutely from 0.5 to 2, else 3 units in the last place."""
    exact = x.double().log()
    near = (x >= 0.5) & (x <= 2)
    return torch.where(near, exact + 2.0**-21.41, exact * (1 + 3 * 2.0**-23)).float()


def fast_sigmoid(x: torch.Tensor) -> torch.Tensor:
    return fast_divide(1 + fast_exp(-x))


def fast_tanh(x: torch.Tensor) -> torch.Tensor:
    return 1 - 2 * fast_divide(fast_exp(2 * x) + 1)


# Arithmetic of the coarser classes, in float32 otherwise. Each takes the reference first.


def rounded_inputs(precision: PrecisionClass, way: Rounding) -> Compute:
    """Operands converted once, as for tensor cores."""

    def compute(reference: Compute, *inputs: torch.Tensor) -> torch.Tensor:
        return reference(*(rounded(leaf, precision, way, 0) for leaf in inputs))

    return compute


def rounded_result(precision: PrecisionClass) -> Compute:
    """The result converted once, and kept in float32."""

    def compute(reference: Compute, *inputs: torch.Tensor) -> torch.Tensor:
        return rounded(reference(*inputs), precision, Rounding.NEAREST, 0)

    return compute


def _of(precision: PrecisionClass) -> dict[str, Compute]:
    return {
        "inputs rounded": rounded_inputs(precision, Rounding.NEAREST),
        "result rounded": rounded_result(precision),
    }


CLASS_ARITHMETIC: Mapping[PrecisionClass, Mapping[str, Compute]] = {
    PrecisionClass.TF32: {**_of(PrecisionClass.TF32), "inputs cut": rounded_inputs(PrecisionClass.TF32, Rounding.CUT)},
    PrecisionClass.FP16: _of(PrecisionClass.FP16),
    PrecisionClass.BF16: _of(PrecisionClass.BF16),
    PrecisionClass.FP8: _of(PrecisionClass.FP8),
}


# Cases. Inputs are uniform in [0, 1) as KernelBench's are, unless the name says otherwise.


def uniform(*shapes: tuple[int, ...]) -> Callable[[torch.Generator], list[torch.Tensor]]:
    return lambda generator: [torch.rand(shape, generator=generator) for shape in shapes]


def normal(*shapes: tuple[int, ...]) -> Callable[[torch.Generator], list[torch.Tensor]]:
    return lambda generator: [torch.randn(shape, generator=generator) for shape in shapes]


def each(change: Compute) -> dict[str, Compute]:
    """One answer for each algorithm of summation; `change` takes it first."""
    return {name: functools.partial(change, total) for name, total in SUMS.items()}


def products(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """All products of a matrix product, the terms of a sum last."""
    return a[:, None, :] * b.T[None, :, :]


def scaled(reference: Compute) -> Compute:
    return lambda *inputs: reference(*inputs) * 1.001


def product_case(inputs: Callable[[torch.Generator], list[torch.Tensor]]) -> Case:
    return Case(
        inputs=inputs,
        reference=lambda a, b: a @ b,
        honest=each(lambda total, a, b: total(products(a, b))),
        mistakes={
            "first term dropped": lambda a, b: a[:, 1:] @ b[1:],
            "last term dropped": lambda a, b: a[:, :-1] @ b[:-1],
            "a scale of 1.001": scaled(torch.matmul),
            "column index off by one": lambda a, b: a @ b.roll(1, 1),
        },
    )


def bias_gelu_sum(x: torch.Tensor, bias: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    return F.gelu(x + bias, approximate=approximate).sum(1)


def wrong_bias(bias: torch.Tensor) -> torch.Tensor:
    """The bias of column i % 32."""
    return bias[torch.arange(len(bias)) % 32]


def gelu_case(inputs: Callable[[torch.Generator], list[torch.Tensor]]) -> Case:
    return Case(
        inputs=inputs,
        reference=F.gelu,
        honest={"erff": lambda x: 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5))), "erfcf": _gelu_by_erfc},
        mistakes={
            "tanh for erf": lambda x: F.gelu(x, approximate="tanh"),
            "sigmoid for erf": lambda x: x * torch.sigmoid(1.702 * x),
            "a scale of 1.001": scaled(F.gelu),
        },
    )


def _gelu_by_erfc(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * torch.erfc(-x * math.sqrt(0.5))


def softmax_by(total: Compute, x: torch.Tensor, exp: Compute = torch.exp) -> torch.Tensor:
    powers = exp(x - x.amax(1, keepdim=True))
    return powers / total(powers)[:, None]


def online_softmax(x: torch.Tensor) -> torch.Tensor:
    most, total = torch.full((len(x),), -math.inf), torch.zeros(len(x))
    for piece in x.split(16, 1):
        now = torch.maximum(most, piece.amax(1))
        total = total * torch.exp(most - now) + torch.exp(piece - now[:, None]).sum(1)
        most = now
    return torch.exp(x - most[:, None]) / total[:, None]


def norm_by(
    total: Compute, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, rsqrt: Compute = torch.rsqrt
) -> torch.Tensor:
    centred = x - (total(x) / x.shape[1])[:, None]
    return centred * rsqrt(total(centred * centred) / x.shape[1] + 1e-5)[:, None] * weight + bias


def norm_of(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, eps: float = 1e-5) -> torch.Tensor:
    return F.layer_norm(x, x.shape[1:], weight, bias, eps)


def _norm_by_squares(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    mean = x.mean(1, keepdim=True)
    return (x - mean) * torch.rsqrt((x * x).mean(1, keepdim=True) - mean * mean + 1e-5) * weight + bias


def _norm_eps_outside(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(1, keepdim=True)) / (x.std(1, unbiased=False, keepdim=True) + 1e-5) * weight + bias


def _norm_unbiased(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(1, keepdim=True)) * torch.rsqrt(x.var(1, keepdim=True) + 1e-5) * weight + bias


def rms_norm_of(x: torch.Tensor, *, eps: float = 1e-6) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(1, keepdim=True) + eps)


def convolve(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, weight, padding=1)


def convolve_by(total: Compute, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    columns = F.unfold(x, 3, padding=1)  # batch, terms, places
    terms = weight.flatten(1)[None, :, None, :] * columns.transpose(1, 2)[:, None]
    return total(terms).view(x.shape[0], weight.shape[0], *x.shape[2:])


def winograd(points: Sequence[float], tile: int, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """F(tile x tile, 3 x 3) in float32 (Lavin and Gray, arXiv:1509.09308)."""
    size = tile + 2
    vandermonde = torch.tensor([[p**i for i in range(size)] for p in points], dtype=torch.float64)
    last = torch.zeros(1, size, dtype=torch.float64)
    last[0, -1] = 1
    evaluate = torch.cat([vandermonde, last])
    g = evaluate[:, :3].clone()
    g[-1] = torch.tensor([0.0, 0.0, 1.0])
    at = evaluate[:, :tile].clone()
    at[-1] = 0
    at[-1, -1] = 1
    b = torch.linalg.inv(evaluate).float()  # transposed convolution: y = at.T ((g w) * (b.T x))
    g, at = g.float(), at.float()
    height, width = x.shape[2:]
    padded = F.pad(x, (1, 1 + -width % tile, 1, 1 + -height % tile))
    patches = padded.unfold(2, size, tile).unfold(3, size, tile)
    moved = torch.einsum("ip,ncabij,jq->ncabpq", b, patches, b)
    kernel = torch.einsum("pi,ocij,qj->ocpq", g, weight, g)
    summed = torch.einsum("ocpq,ncabpq->noabpq", kernel, moved)
    out = torch.einsum("pi,noabpq,qj->noaibj", at, summed, at)
    n, o, a, _, c, _ = out.shape
    return out.reshape(n, o, a * tile, c * tile)[:, :, :height, :width]


def by_fft(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    shape = [extent + 2 for extent in x.shape[2:]]
    spectrum = torch.einsum("nchw,ochw->nohw", torch.fft.rfft2(x, shape), torch.fft.rfft2(weight.flip(2, 3), shape))
    result: torch.Tensor = torch.fft.irfft2(spectrum, shape)
    return result[:, :, 1:-1, 1:-1]


def blocked_cumsum(x: torch.Tensor) -> torch.Tensor:
    pieces = x.view(x.shape[0], -1, 64)
    inside = running_sum(pieces)
    before = running_sum(inside[:, :, -1]) - inside[:, :, -1]
    return (inside + before[:, :, None]).view(x.shape)


def cross_entropy_by(total: Compute, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    most = x.amax(1)
    logs = torch.log(total(torch.exp(x - most[:, None]))) + most
    return total(logs - x.gather(1, labels[:, None])[:, 0]) / len(x)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, ahead: int = 0, width: float = 0) -> torch.Tensor:
    scores = q @ k.T / math.sqrt(width or q.shape[1])
    mask = torch.ones_like(scores, dtype=torch.bool).tril(ahead)
    return torch.softmax(scores.masked_fill(~mask, -math.inf), 1) @ v


def attention_by(total: Compute, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = total(products(q, k.T)) / math.sqrt(q.shape[1])
    mask = torch.ones_like(scores, dtype=torch.bool).tril()
    weights = softmax_by(total, scores.masked_fill(~mask, -math.inf), fast_exp)
    return total(products(weights, v))


_WIDTH = 96


def _layers(generator: torch.Generator) -> list[torch.Tensor]:
    """Input, and weights and biases as `torch.nn.Linear` draws them."""
    bound = 1 / math.sqrt(_WIDTH)
    drawn = [torch.rand(2, _WIDTH, generator=generator)]
    for _ in range(6):
        drawn.append((torch.rand(_WIDTH, _WIDTH, generator=generator) * 2 - 1) * bound)
        drawn.append((torch.rand(_WIDTH, generator=generator) * 2 - 1) * bound)
    return drawn


def deep(*tensors: torch.Tensor, total: Compute | None = None, skipped: int = -1) -> torch.Tensor:
    """Six layers: the output hardly depends on the input."""
    x, layers = tensors[0], tensors[1:]
    for number, (weight, bias) in enumerate(zip(layers[::2], layers[1::2], strict=True)):
        x = x @ weight.T if total is None else total(products(x, weight.T))
        x = torch.relu(x + (0 if number == skipped else bias))
    return x


def _other_input(*tensors: torch.Tensor) -> torch.Tensor:
    return deep(tensors[0].roll(1, 0), *tensors[1:])


CASES: Mapping[str, Case] = {
    "matrix product": product_case(uniform((24, 500), (500, 20))),
    "matrix product, normal": product_case(normal((24, 500), (500, 20))),
    "matrix product, 4,096 terms": product_case(normal((16, 4096), (4096, 12))),
    "row mean of 2**20": Case(
        inputs=uniform((8, 2**20)),
        reference=lambda x: x.mean(1),
        honest={
            "pairwise": lambda x: pairwise(x) / 2**20,
            "one accumulator": lambda x: running_sum(x)[:, -1] / 2**20,
            "split-k": lambda x: running_sum(x.view(8, 256, -1))[:, :, -1].sum(1) / 2**20,
        },
        mistakes={
            "first term dropped": lambda x: x[:, 1:].sum(1) / 2**20,
            "a scale of 1.001": scaled(lambda x: x.mean(1)),
        },
    ),
    "bias, GELU and row sum": Case(
        inputs=uniform((37, 150), (150,)),
        reference=bias_gelu_sum,
        honest=each(lambda total, x, bias: total(F.gelu(x + bias))),
        mistakes={
            "wrong bias index": lambda x, bias: bias_gelu_sum(x, wrong_bias(bias)),
            "tanh for erf": lambda x, bias: bias_gelu_sum(x, bias, "tanh"),
            "first term dropped": lambda x, bias: bias_gelu_sum(x[:, 1:], bias[1:]),
            "last term dropped": lambda x, bias: bias_gelu_sum(x[:, :-1], bias[:-1]),
            "a scale of 1.001": scaled(bias_gelu_sum),
        },
    ),
    "GELU": gelu_case(uniform((64, 300))),
    "GELU, normal": gelu_case(normal((64, 300))),
    "sigmoid": Case(
        inputs=normal((64, 300)),
        reference=torch.sigmoid,
        honest={"fast exp and division": fast_sigmoid},
        mistakes={"hard sigmoid": F.hardsigmoid, "a scale of 1.001": scaled(torch.sigmoid)},
    ),
    "tanh": Case(
        inputs=normal((64, 300)),
        reference=torch.tanh,
        honest={"fast exp and division": fast_tanh},
        mistakes={"Pade approximant": lambda x: (x * (27 + x * x) / (27 + 9 * x * x)).clamp(-1, 1)},
    ),
    "softplus": Case(
        inputs=normal((64, 300)),
        reference=F.softplus,
        honest={"fast exp and log": lambda x: torch.where(x > 15, x, fast_log(1 + fast_exp(x.clamp(max=15))))},
        mistakes={"threshold of 3": lambda x: F.softplus(x, threshold=3)},
    ),
    "softmax": Case(
        inputs=uniform((32, 1000)),
        reference=lambda x: torch.softmax(x, 1),
        honest=each(softmax_by)
        | {"online": online_softmax, "fast exp": lambda x: softmax_by(one_accumulator, x, fast_exp)},
        mistakes={
            "last term dropped from the sum": lambda x: softmax_by(lambda p: p[:, :-1].sum(1), x),
            "a scale of 1.001": scaled(lambda x: torch.softmax(x, 1)),
        },
    ),
    "layer norm": Case(
        inputs=uniform((32, 1000), (1000,), (1000,)),
        reference=norm_of,
        honest=each(norm_by)
        | {
            "mean of squares": _norm_by_squares,
            "fast rsqrt": lambda x, w, b: norm_by(one_accumulator, x, w, b, fast_rsqrt),
        },
        mistakes={
            "epsilon outside the root": _norm_eps_outside,
            "epsilon of 1e-6": lambda x, w, b: norm_of(x, w, b, eps=1e-6),
            "unbiased variance": _norm_unbiased,
            "weight index off by one": lambda x, w, b: norm_of(x, w.roll(1), b),
            "a scale of 1.001": scaled(norm_of),
        },
    ),
    "RMS norm, normal": Case(
        inputs=normal((32, 1000)),
        reference=rms_norm_of,
        honest=each(lambda total, x: x * fast_rsqrt(total(x * x) / 1000 + 1e-6)[:, None]),
        mistakes={
            "epsilon outside the root": lambda x: x / ((x * x).mean(1, keepdim=True).sqrt() + 1e-6),
            "epsilon of 1e-5": lambda x: rms_norm_of(x, eps=1e-5),
            "last term dropped": lambda x: x * torch.rsqrt((x[:, :-1] ** 2).sum(1, keepdim=True) / 1000 + 1e-6),
        },
    ),
    "variance": Case(
        inputs=uniform((32, 1000)),
        reference=lambda x: x.var(1, unbiased=False),
        honest=each(lambda total, x: total((x - (total(x) / 1000)[:, None]) ** 2) / 1000),
        mistakes={"unbiased variance": lambda x: x.var(1)},
    ),
    "average pooling": Case(
        inputs=uniform((2, 3, 33, 35)),
        reference=lambda x: F.avg_pool2d(x, 3, 2, 1),
        honest={"one accumulator": lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=1) * (1 / 9)},
        mistakes={
            "window off by one": lambda x: F.avg_pool2d(x.roll(1, 3), 3, 2, 1),
            "padding not counted": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        },
    ),
    "convolution": Case(
        inputs=lambda g: [
            torch.rand(2, 16, 18, 18, generator=g),
            (torch.rand(8, 16, 3, 3, generator=g) * 2 - 1) / 12,
        ],
        fixed=(1,),
        reference=convolve,
        honest=each(convolve_by)
        | {
            "Winograd F(2x2)": functools.partial(winograd, (0, 1, -1), 2),
            "Winograd F(4x4)": functools.partial(winograd, (0, 1, -1, 2, -2), 4),
            "FFT": by_fft,
        },
        mistakes={
            "window off by one": lambda x, w: convolve(x.roll(1, 3), w),
            "last channel dropped": lambda x, w: convolve(x[:, :-1], w[:, :-1]),
            "kernel flipped": lambda x, w: convolve(x, w.flip(3)),
            "a scale of 1.001": scaled(convolve),
        },
    ),
    "running sum": Case(
        inputs=uniform((16, 4096)),
        reference=lambda x: x.cumsum(1),
        honest={"one accumulator": running_sum, "blocks of 64": blocked_cumsum},
        mistakes={
            "exclusive": lambda x: x.cumsum(1) - x,
            "first term dropped": lambda x: x.cumsum(1) - x[:, :1],
        },
    ),
    "cross entropy, normal": Case(
        inputs=lambda g: [torch.randn(64, 400, generator=g), torch.randint(400, (64,), generator=g)],
        reference=F.cross_entropy,
        honest=each(cross_entropy_by),
        mistakes={
            "last class dropped": lambda x, y: F.cross_entropy(x[:, :-1], y.clamp(max=398)),
            "mean over one row less": lambda x, y: F.cross_entropy(x, y, reduction="sum") / 63,
            "a scale of 1.001": scaled(F.cross_entropy),
        },
    ),
    "attention, normal": Case(
        inputs=normal((48, 32), (48, 32), (48, 32)),
        reference=attention,
        honest=each(attention_by),
        mistakes={
            "mask off by one": lambda q, k, v: attention(q, k, v, ahead=1),
            "scale of width 33": lambda q, k, v: attention(q, k, v, width=33),
        },
    ),
    "six layers": Case(
        inputs=_layers,
        fixed=tuple(range(1, 13)),
        reference=deep,
        honest=each(lambda total, *tensors: deep(*tensors, total=total)),
        mistakes={
            "a bias missing": lambda *tensors: deep(*tensors, skipped=2),
            "another input": _other_input,
            "a scale of 1.001": scaled(deep),
        },
    ),
}
