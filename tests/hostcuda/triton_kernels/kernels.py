"""Sound Triton kernels, as solutions have them, each with a call that compares it with torch.

`CALLS` maps a name to a function that launches the kernel on small tensors whose sizes are no multiples of its blocks,
and returns its result and torch's.
"""

import torch
import triton
import triton.language as tl

CALLS = {}


def call(function):
    CALLS[function.__name__] = function
    return function


def rand(*shape):
    return torch.randn(*shape, device="cuda")


def integers(high, *shape):
    return torch.randint(0, high, shape, dtype=torch.int32, device="cuda")


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n)
    b = tl.load(y + i, mask=i < n)
    tl.store(out + i, a + b, mask=i < n)  # add: store


@call
def add():
    x, y = rand(1000), rand(1000)
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(1000, 128),)](x, y, out, 1000, BLOCK=128)
    return out, x + y


@call
def add_in_bfloat16():
    x, y = rand(777).bfloat16(), rand(777).bfloat16()
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(777, 64),)](x, y, out, 777, BLOCK=64)
    return out, x + y


@call
def add_in_place():
    x, y = rand(300), rand(300)
    wanted = x + y
    add_kernel[(triton.cdiv(300, 64),)](x, y, x, 300, BLOCK=64)
    return x, wanted


@triton.jit
def relu_kernel(x, n, BLOCK: tl.constexpr):
    for first in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = first + tl.arange(0, BLOCK)
        tl.store(x + i, tl.maximum(tl.load(x + i, mask=i < n), 0.0), mask=i < n)


@call
def relu_by_a_fixed_grid():
    x = rand(2000)
    wanted = torch.relu(x)
    relu_kernel[(7,)](x, 2000, BLOCK=64)
    return x, wanted


@triton.jit
def strided_kernel(x, out, rows, columns, step, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row * columns + j, tl.load(x + row * step + j, mask=j < columns) * 2.0, mask=j < columns)


@call
def strided_rows():
    x = rand(20, 50)[:, :37]
    out = torch.empty(20, 37, device="cuda")
    strided_kernel[(20,)](x, out, 20, 37, x.stride(0), BLOCK=64)
    return out, x * 2


@triton.jit
def softmax_kernel(x, out, n, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + j, mask=j < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * n + j, e / tl.sum(e, axis=0), mask=j < n)


@call
def softmax():
    x = rand(31, 70)
    out = torch.empty_like(x)
    softmax_kernel[(31,)](x, out, 70, BLOCK=128)
    return out, torch.softmax(x, 1)


@call
def softmax_in_place():
    x = rand(9, 100)
    wanted = torch.softmax(x, 1)
    softmax_kernel[(9,)](x, x, 100, BLOCK=128)
    return x, wanted


@triton.jit
def row_sum_kernel(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, n, BLOCK):
        j = first + tl.arange(0, BLOCK)
        total += tl.load(x + row * n + j, mask=j < n, other=0.0)
    tl.store(out + row, tl.sum(total, axis=0))


@call
def row_sum():
    x = rand(15, 333)
    out = torch.empty(15, device="cuda")
    row_sum_kernel[(15,)](x, out, 333, BLOCK=64)
    return out, x.sum(1)


@triton.jit
def column_sum_kernel(x, out, rows, columns, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + j, mask=j < columns)
    tl.atomic_add(out + j, v, mask=j < columns)  # column_sum: add


@call
def column_sum_by_atomics():
    x = rand(40, 50)
    out = torch.zeros(50, device="cuda")
    column_sum_kernel[(40,)](x, out, 40, 50, BLOCK=64)
    return out, x.sum(0)


@triton.jit
def two_step_kernel(x, parts, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + tl.program_id(0), tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0))


@call
def sum_in_two_launches():
    x = rand(1000)
    parts, out = torch.empty(8, device="cuda"), torch.empty(1, device="cuda")
    two_step_kernel[(8,)](x, parts, 1000, BLOCK=128)
    two_step_kernel[(1,)](parts, out, 8, BLOCK=8)
    return out, x.sum().reshape(1)


@triton.jit
def last_one_kernel(x, parts, counter, out, n, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + tl.program_id(0), tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0))  # last_one: part
    if tl.atomic_add(counter, 1) == PROGRAMS - 1:
        tl.store(out, tl.sum(tl.load(parts + tl.arange(0, PROGRAMS)), axis=0))  # last_one: all


@call
def sum_by_the_last_program():
    x = rand(1000)
    parts, out = torch.empty(8, device="cuda"), torch.empty(1, device="cuda")
    counter = torch.zeros(1, dtype=torch.int32, device="cuda")
    last_one_kernel[(8,)](x, parts, counter, out, 1000, BLOCK=128, PROGRAMS=8)
    return out, x.sum().reshape(1)


@triton.jit
def locked_kernel(x, total, lock, n, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + j, mask=j < n, other=0.0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total + j, tl.load(total + j, mask=j < n) + v, mask=j < n)  # locked: sum
    tl.atomic_xchg(lock, 0)


@call
def sum_under_a_lock():
    x = rand(12, 60)
    total, lock = torch.zeros(60, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    locked_kernel[(12,)](x, total, lock, 60, BLOCK=64)
    return total, x.sum(0)


@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0)
        y = tl.load(
            b + inner[:, None] * N + columns[None, :], mask=(inner[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        total += tl.dot(x, y)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], total, mask=inside)  # matmul: store


@call
def matmul():
    a, b = rand(40, 70), rand(70, 50)
    c = torch.empty(40, 50, device="cuda")
    matmul_kernel[(3, 4)](a, b, c, 40, 50, 70, BM=16, BN=16, BK=32)
    return c, a @ b


@triton.jit
def swizzled_kernel(a, b, c, M, N, K, GROUP: tl.constexpr, B: tl.constexpr):
    pid, down, across = tl.program_id(0), tl.cdiv(M, B), tl.cdiv(N, B)
    group = pid // (GROUP * across)
    height = min(down - group * GROUP, GROUP)
    rows = (group * GROUP + pid % (GROUP * across) % height) * B + tl.arange(0, B)
    columns = pid % (GROUP * across) // height * B + tl.arange(0, B)
    total = tl.zeros((B, B), dtype=tl.float32)
    for k in range(0, K, B):
        inner = k + tl.arange(0, B)
        x = tl.load(a + (rows % M)[:, None] * K + inner[None, :], mask=inner[None, :] < K, other=0.0)
        y = tl.load(b + inner[:, None] * N + (columns % N)[None, :], mask=inner[:, None] < K, other=0.0)
        total += tl.dot(x, y)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], total, mask=inside)


@call
def matmul_in_groups():
    a, b = rand(72, 40), rand(40, 56)
    c = torch.empty(72, 56, device="cuda")
    swizzled_kernel[(triton.cdiv(72, 16) * triton.cdiv(56, 16),)](a, b, c, 72, 56, 40, GROUP=2, B=16)
    return c, a @ b


@triton.jit
def persistent_kernel(a, b, c, M, N, K, B: tl.constexpr):
    across = tl.cdiv(N, B)
    for tile in range(tl.program_id(0), tl.cdiv(M, B) * across, tl.num_programs(0)):
        rows, columns = tile // across * B + tl.arange(0, B), tile % across * B + tl.arange(0, B)
        total = tl.zeros((B, B), dtype=tl.float32)
        for k in range(0, K, B):
            inner = k + tl.arange(0, B)
            x = tl.load(
                a + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0
            )
            y = tl.load(
                b + inner[:, None] * N + columns[None, :], mask=(inner[:, None] < K) & (columns[None, :] < N), other=0.0
            )
            total += tl.dot(x, y)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        tl.store(c + rows[:, None] * N + columns[None, :], total, mask=inside)


@call
def matmul_by_persistent_programs():
    a, b = rand(50, 33), rand(33, 70)
    c = torch.empty(50, 70, device="cuda")
    persistent_kernel[(5,)](a, b, c, 50, 70, 33, B=16)
    return c, a @ b


@triton.jit
def split_kernel(a, b, c, M, N, K, SPLIT: tl.constexpr, B: tl.constexpr):
    rows, columns = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    total = tl.zeros((B, B), dtype=tl.float32)
    for k in range(tl.program_id(2) * B, K, SPLIT * B):
        inner = k + tl.arange(0, B)
        x = tl.load(a + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0)
        y = tl.load(
            b + inner[:, None] * N + columns[None, :], mask=(inner[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        total += tl.dot(x, y)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.atomic_add(c + rows[:, None] * N + columns[None, :], total, mask=inside)  # split: add


@call
def matmul_with_a_split_sum():
    a, b = rand(20, 100), rand(100, 30)
    c = torch.zeros(20, 30, device="cuda")
    split_kernel[(2, 2, 3)](a, b, c, 20, 30, 100, SPLIT=3, B=16)
    return c, a @ b


@triton.jit
def block_pointer_kernel(a, b, c, M, N, K, B: tl.constexpr):
    i, j = tl.program_id(0) * B, tl.program_id(1) * B
    x = tl.make_block_ptr(a, shape=(M, K), strides=(K, 1), offsets=(i, 0), block_shape=(B, B), order=(1, 0))
    y = tl.make_block_ptr(b, shape=(K, N), strides=(N, 1), offsets=(0, j), block_shape=(B, B), order=(1, 0))
    total = tl.zeros((B, B), dtype=tl.float32)
    for _ in range(0, K, B):
        total += tl.dot(tl.load(x, boundary_check=(0, 1)), tl.load(y, boundary_check=(0, 1)))
        x, y = tl.advance(x, (0, B)), tl.advance(y, (B, 0))
    z = tl.make_block_ptr(c, shape=(M, N), strides=(N, 1), offsets=(i, j), block_shape=(B, B), order=(1, 0))
    tl.store(z, total, boundary_check=(0, 1))  # block_pointer: store


@call
def matmul_by_block_pointers():
    a, b = rand(40, 50), rand(50, 60)
    c = torch.empty(40, 60, device="cuda")
    block_pointer_kernel[(3, 4)](a, b, c, 40, 60, 50, B=16)
    return c, a @ b


@triton.jit
def batched_kernel(a, b, c, M, N, K, B: tl.constexpr):
    at = tl.program_id(2)
    rows, columns, inner = (
        tl.program_id(0) * B + tl.arange(0, B),
        tl.program_id(1) * B + tl.arange(0, B),
        tl.arange(0, B),
    )
    x = tl.load(
        a + at * M * K + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0
    )
    y = tl.load(
        b + at * K * N + inner[:, None] * N + columns[None, :],
        mask=(inner[:, None] < K) & (columns[None, :] < N),
        other=0.0,
    )
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + at * M * N + rows[:, None] * N + columns[None, :], tl.dot(x, y), mask=inside)


@call
def batched_matmul():
    a, b = rand(4, 20, 14), rand(4, 14, 18)
    c = torch.empty(4, 20, 18, device="cuda")
    batched_kernel[(2, 2, 4)](a, b, c, 20, 18, 14, B=16)
    return c, a @ b


@triton.jit
def transpose_kernel(x, out, rows, columns, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.program_id(1) * B + tl.arange(0, B)
    v = tl.load(x + i[:, None] * columns + j[None, :], mask=(i[:, None] < rows) & (j[None, :] < columns))
    tl.store(out + j[:, None] * rows + i[None, :], tl.trans(v), mask=(j[:, None] < columns) & (i[None, :] < rows))


@call
def transpose():
    x = rand(40, 25)
    out = torch.empty(25, 40, device="cuda")
    transpose_kernel[(3, 2)](x, out, 40, 25, B=16)
    return out, x.t()


@triton.jit
def gather_kernel(table, index, out, n, width, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    source = tl.load(index + row)
    v = tl.load(table + source * width + j, mask=j < width)  # gather: read
    tl.store(out + row * width + j, v, mask=j < width)


@call
def embedding():
    table, index = rand(30, 20), integers(30, 50)
    index[7] = 29
    out = torch.empty(50, 20, device="cuda")
    gather_kernel[(50,)](table, index, out, 50, 20, BLOCK=32)
    return out, table[index.long()]


@triton.jit
def scatter_kernel(x, index, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = tl.load(index + i, mask=i < n, other=0)
    tl.atomic_add(out + place, tl.load(x + i, mask=i < n), mask=i < n)  # scatter: add


@call
def scatter_add():
    x, index = rand(500), integers(20, 500)
    out = torch.zeros(20, device="cuda")
    scatter_kernel[(triton.cdiv(500, 64),)](x, index, out, 500, BLOCK=64)
    return out, torch.zeros(20, device="cuda").scatter_add_(0, index.long(), x)


@triton.jit
def histogram_kernel(x, bins, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(bins + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)


@call
def histogram():
    x, bins = integers(8, 1000), torch.zeros(8, dtype=torch.int32, device="cuda")
    histogram_kernel[(8,)](x, bins, 1000, BLOCK=128)
    return bins, torch.bincount(x, minlength=8).int()


@triton.jit
def maximum_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_max(out, tl.max(tl.load(x + i, mask=i < n, other=0), axis=0))


@call
def maximum_by_atomics():
    x, out = integers(1000, 700), torch.zeros(1, dtype=torch.int32, device="cuda")
    maximum_kernel[(6,)](x, out, 700, BLOCK=128)
    return out, x.max().reshape(1)


@triton.jit
def scan_kernel(x, out, n, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row * n + j, tl.cumsum(tl.load(x + row * n + j, mask=j < n, other=0.0), axis=0), mask=j < n)


@call
def scan_of_rows():
    x = rand(10, 100)
    out = torch.empty_like(x)
    scan_kernel[(10,)](x, out, 100, BLOCK=128)
    return out, x.cumsum(1)


@triton.jit
def argmax_kernel(x, out, n, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row, tl.argmax(tl.load(x + row * n + j, mask=j < n, other=-float("inf")), axis=0))


@call
def argmax():
    x, out = rand(20, 90), torch.empty(20, dtype=torch.int32, device="cuda")
    argmax_kernel[(20,)](x, out, 90, BLOCK=128)
    return out, x.argmax(1).int()


@triton.jit
def layer_norm_kernel(x, weight, bias, out, n, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + j, mask=j < n, other=0.0)
    mean = tl.sum(v, axis=0) / n
    centred = tl.where(j < n, v - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / n + 1e-5)
    w, b = tl.load(weight + j, mask=j < n), tl.load(bias + j, mask=j < n)  # layer_norm: weights
    tl.store(out + row * n + j, centred * scale * w + b, mask=j < n)


@call
def layer_norm():
    x, weight, bias = rand(20, 80), rand(80), rand(80)
    out = torch.empty_like(x)
    layer_norm_kernel[(20,)](x, weight, bias, out, 80, BLOCK=128)
    return out, torch.nn.functional.layer_norm(x, (80,), weight, bias)


@triton.jit
def rms_norm_kernel(x, weight, out, n, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + j, mask=j < n, other=0.0)
    tl.store(
        out + row * n + j,
        v / tl.sqrt(tl.sum(v * v, axis=0) / n + 1e-6) * tl.load(weight + j, mask=j < n),
        mask=j < n,
    )


@call
def rms_norm():
    x, weight = rand(20, 80), rand(80)
    out = torch.empty_like(x)
    rms_norm_kernel[(20,)](x, weight, out, 80, BLOCK=128)
    return out, x / (x.square().mean(1, keepdim=True) + 1e-6).sqrt() * weight


@triton.jit
def group_norm_kernel(x, out, channels, size, groups, BLOCK: tl.constexpr):
    first = tl.program_id(0) * (channels // groups) * size
    n, j = channels // groups * size, tl.arange(0, BLOCK)
    v = tl.load(x + first + j, mask=j < n, other=0.0)
    mean = tl.sum(v, axis=0) / n
    centred = tl.where(j < n, v - mean, 0.0)
    tl.store(out + first + j, centred / tl.sqrt(tl.sum(centred * centred, axis=0) / n + 1e-5), mask=j < n)


@call
def group_norm():
    x = rand(3, 8, 15)
    out = torch.empty_like(x)
    group_norm_kernel[(3 * 4,)](x, out, 8, 15, 4, BLOCK=32)
    return out, torch.nn.functional.group_norm(x, 4)


@triton.jit
def cross_entropy_kernel(x, labels, out, n, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + j, mask=j < n, other=-float("inf"))
    peak = tl.max(v, axis=0)
    own = tl.load(x + row * n + tl.load(labels + row))
    tl.store(out + row, tl.log(tl.sum(tl.exp(v - peak), axis=0)) + peak - own)


@call
def cross_entropy():
    x, labels = rand(25, 60), integers(60, 25)
    out = torch.empty(25, device="cuda")
    cross_entropy_kernel[(25,)](x, labels, out, 60, BLOCK=64)
    return out, torch.nn.functional.cross_entropy(x, labels.long(), reduction="none")


@triton.jit
def max_pool_kernel(x, out, n, kept, WINDOW: tl.constexpr, BLOCK: tl.constexpr):
    row, j = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    for k in tl.static_range(WINDOW):
        best = tl.maximum(best, tl.load(x + row * n + j * WINDOW + k, mask=j < kept, other=-float("inf")))
    tl.store(out + row * kept + j, best, mask=j < kept)


@call
def max_pool():
    x = rand(5, 100)
    out = torch.empty(5, 33, device="cuda")
    max_pool_kernel[(3, 5)](x, out, 100, 33, WINDOW=3, BLOCK=16)
    return out, torch.nn.functional.max_pool1d(x, 3)


@triton.jit
def convolution_kernel(x, weight, out, n, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in tl.static_range(TAPS):
        at = i + k - TAPS // 2
        total += tl.load(x + at, mask=(at >= 0) & (at < n), other=0.0) * tl.load(weight + k)  # convolution: read
    tl.store(out + i, total, mask=i < n)


@call
def convolution():
    x, weight = rand(200), rand(5)
    out = torch.empty_like(x)
    convolution_kernel[(4,)](x, weight, out, 200, TAPS=5, BLOCK=64)
    return out, torch.nn.functional.conv1d(x.reshape(1, 1, -1), weight.reshape(1, 1, -1), padding=2).reshape(-1)


@triton.jit
def stencil_kernel(x, out, height, width, B: tl.constexpr):
    i = (tl.program_id(0) * B + tl.arange(0, B))[:, None]
    j = (tl.program_id(1) * B + tl.arange(0, B))[None, :]
    total = tl.zeros((B, B), dtype=tl.float32)
    for di in tl.static_range(-1, 2):
        for dj in tl.static_range(-1, 2):
            inside = (i + di >= 0) & (i + di < height) & (j + dj >= 0) & (j + dj < width)
            total += tl.load(x + (i + di) * width + j + dj, mask=inside, other=0.0)
    tl.store(out + i * width + j, total / 9.0, mask=(i < height) & (j < width))


@call
def stencil():
    x = rand(30, 22)
    out = torch.empty_like(x)
    stencil_kernel[(2, 2)](x, out, 30, 22, B=16)
    return out, torch.nn.functional.avg_pool2d(x[None, None], 3, 1, 1)[0, 0]


@triton.jit
def attention_kernel(q, k, v, out, n, scale, D: tl.constexpr, B: tl.constexpr):
    i, d = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    x = tl.load(q + i[:, None] * D + d[None, :], mask=i[:, None] < n, other=0.0)
    peak = tl.full((B,), -float("inf"), dtype=tl.float32)
    weight, total = tl.zeros((B,), dtype=tl.float32), tl.zeros((B, D), dtype=tl.float32)
    for first in range(0, n, B):
        j = first + tl.arange(0, B)
        y = tl.load(k + j[:, None] * D + d[None, :], mask=j[:, None] < n, other=0.0)
        s = tl.where(j[None, :] < n, tl.dot(x, tl.trans(y)) * scale, -float("inf"))
        new = tl.maximum(peak, tl.max(s, axis=1))
        p, keep = tl.exp(s - new[:, None]), tl.exp(peak - new)
        weight = weight * keep + tl.sum(p, axis=1)
        z = tl.load(v + j[:, None] * D + d[None, :], mask=j[:, None] < n, other=0.0)
        total = total * keep[:, None] + tl.dot(p, z)
        peak = new
    tl.store(out + i[:, None] * D + d[None, :], total / weight[:, None], mask=i[:, None] < n)


@call
def attention():
    q, k, v = rand(50, 16), rand(50, 16), rand(50, 16)
    out = torch.empty_like(q)
    attention_kernel[(4,)](q, k, v, out, 50, 0.25, D=16, B=16)
    return out, torch.softmax(q @ k.t() * 0.25, 1) @ v


@triton.jit
def rotary_kernel(x, cosine, sine, out, half, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    a = tl.load(x + row * 2 * half + j, mask=j < half)
    b = tl.load(x + row * 2 * half + half + j, mask=j < half)
    c, s = tl.load(cosine + row * half + j, mask=j < half), tl.load(sine + row * half + j, mask=j < half)
    tl.store(out + row * 2 * half + j, a * c - b * s, mask=j < half)
    tl.store(out + row * 2 * half + half + j, b * c + a * s, mask=j < half)


@call
def rotary():
    x, angle = rand(12, 40), rand(12, 20)
    out = torch.empty_like(x)
    rotary_kernel[(12,)](x, angle.cos(), angle.sin(), out, 20, BLOCK=32)
    a, b = x[:, :20], x[:, 20:]
    return out, torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], 1)


@triton.jit
def swiglu_kernel(x, out, n, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    gate = tl.load(x + row * 2 * n + j, mask=j < n)
    up = tl.load(x + row * 2 * n + n + j, mask=j < n)
    tl.store(out + row * n + j, gate * tl.sigmoid(gate) * up, mask=j < n)


@call
def swiglu():
    x = rand(14, 100)
    out = torch.empty(14, 50, device="cuda")
    swiglu_kernel[(14,)](x, out, 50, BLOCK=64)
    return out, torch.nn.functional.silu(x[:, :50]) * x[:, 50:]


@triton.jit
def dequantise_kernel(x, scales, out, n, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0).to(tl.float32)
    tl.store(out + i, v * tl.load(scales + i // GROUP, mask=i < n), mask=i < n)


@call
def dequantise():
    x, scales = torch.randint(-127, 127, (320,), dtype=torch.int8, device="cuda"), rand(10)
    out = torch.empty(320, device="cuda")
    dequantise_kernel[(5,)](x, scales, out, 320, GROUP=32, BLOCK=64)
    return out, x.float() * scales.repeat_interleave(32)


@triton.jit
def unpack_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0).to(tl.int32)
    tl.store(out + 2 * i, (v & 15) - 8, mask=i < n)
    tl.store(out + 2 * i + 1, ((v >> 4) & 15) - 8, mask=i < n)


@call
def unpack_four_bits():
    x = torch.randint(0, 256, (150,), dtype=torch.uint8, device="cuda")
    out = torch.empty(300, dtype=torch.int32, device="cuda")
    unpack_kernel[(3,)](x, out, 150, BLOCK=64)
    return out, torch.stack([(x & 15).int() - 8, (x >> 4).int() - 8], 1).reshape(-1)


@triton.jit
def triangle_kernel(x, out, n, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row * n + j, tl.where(j <= row, tl.load(x + row * n + j, mask=j < n), 0.0), mask=j < n)


@call
def lower_triangle():
    x = rand(30, 30)
    out = torch.empty_like(x)
    triangle_kernel[(30,)](x, out, 30, BLOCK=32)
    return out, x.tril()


@triton.jit
def reversed_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + n - 1 - i, tl.load(x + i, mask=i < n), mask=i < n)


@call
def reverse():
    x = rand(100)
    out = torch.empty_like(x)
    reversed_kernel[(4,)](x, out, 100, BLOCK=32)
    return out, x.flip(0)


@triton.jit
def dropout_kernel(x, out, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.rand(seed, i) > 0.5
    tl.store(out + i, tl.where(kept, tl.load(x + i, mask=i < n) * 2.0, 0.0), mask=i < n)


@call
def dropout():
    x = rand(500)
    out = torch.empty_like(x)
    dropout_kernel[(8,)](x, out, 500, 7, BLOCK=64)
    return out, torch.where(out == 0, torch.zeros_like(x), 2 * x)


@triton.jit
def three_axes_kernel(x, out, a, b, c, BLOCK: tl.constexpr):
    j = tl.arange(0, BLOCK)
    at = (tl.program_id(0) * b + tl.program_id(1)) * c + tl.program_id(2) * BLOCK + j
    inside = tl.program_id(2) * BLOCK + j < c
    tl.store(out + at, tl.abs(tl.load(x + at, mask=inside)), mask=inside)


@call
def three_axes():
    x = rand(3, 4, 50)
    out = torch.empty_like(x)
    three_axes_kernel[(3, 4, 4)](x, out, 3, 4, 50, BLOCK=16)
    return out, x.abs()


@triton.jit
def variance_kernel(x, out, n, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    total, squares = 0.0, 0.0
    for first in range(0, n, BLOCK):
        v = tl.load(x + row * n + first + j, mask=first + j < n, other=0.0)
        total += tl.sum(v, axis=0)
        squares += tl.sum(v * v, axis=0)
    tl.store(out + row, squares / n - total / n * total / n)


@call
def variance():
    x = rand(11, 150)
    out = torch.empty(11, device="cuda")
    variance_kernel[(11,)](x, out, 150, BLOCK=64)
    return out, x.var(1, correction=0)


@triton.jit
def helper(v):
    return v * 0.5 * (1.0 + tl.erf(v * 0.7071067811865476))


@triton.jit
def gelu_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, helper(tl.load(x + i, mask=i < n)), mask=i < n)


@call
def gelu_by_a_function():
    x = rand(400)
    out = torch.empty_like(x)
    gelu_kernel[(7,)](x, out, 400, BLOCK=64)
    return out, torch.nn.functional.gelu(x)
