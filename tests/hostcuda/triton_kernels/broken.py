"""Changes that break the sound kernels: what is replaced, by what, and which finding names which line.

`line` is a text of the line that the finding must name, in the changed file.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """One change of `kernels.py`. `call` names the call that shows it."""

    call: str
    old: str
    new: str
    kind: str
    line: str


RACE, BOUNDS = "data_race", "memory_error"

BROKEN = (
    Broken(
        call="add", old="a + b, mask=i < n)  # add: store", new="a + b)  # add: store", kind=BOUNDS, line="# add: store"
    ),
    Broken(
        call="add",
        old="a = tl.load(x + i, mask=i < n)",
        new="a = tl.load(x + i)",
        kind=BOUNDS,
        line="a = tl.load(x + i)",
    ),
    Broken(
        call="add",
        old="add_kernel[(triton.cdiv(1000, 128),)](x, y, out, 1000, BLOCK=128)",
        new="add_kernel[(triton.cdiv(1000, 128),)](x, y, out, 1001, BLOCK=128)",
        kind=BOUNDS,
        line="a = tl.load(x + i, mask=i < n)",
    ),
    Broken(
        call="add",
        old="i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    a =",
        new="i = tl.program_id(0) * (BLOCK - 1) + tl.arange(0, BLOCK)\n    a =",
        kind=RACE,
        line="# add: store",
    ),
    Broken(
        call="softmax",
        old='v = tl.load(x + row * n + j, mask=j < n, other=-float("inf"))\n    e =',
        new="v = tl.load(x + row * n + j)\n    e =",
        kind=BOUNDS,
        line="v = tl.load(x + row * n + j)\n",
    ),
    Broken(
        call="softmax_in_place",
        old="tl.store(out + row * n + j, e / tl.sum(e, axis=0), mask=j < n)",
        new="tl.store(out + row * n + j, e / tl.sum(e, axis=0), mask=j < n + 1)",
        kind=RACE,
        line='v = tl.load(x + row * n + j, mask=j < n, other=-float("inf"))\n    e =',
    ),
    Broken(
        call="column_sum_by_atomics",
        old="tl.atomic_add(out + j, v, mask=j < columns)",
        new="tl.store(out + j, tl.load(out + j, mask=j < columns) + v, mask=j < columns)",
        kind=RACE,
        line="# column_sum: add",
    ),
    Broken(
        call="column_sum_by_atomics",
        old="    v = tl.load(x + row * columns + j, mask=j < columns)\n",
        new="    v = tl.load(x + row * columns + j, mask=j < columns)\n"
        "    if row == 0:\n        tl.store(out + j, v * 0.0, mask=j < columns)  # zeroes\n",
        kind=RACE,
        line="# column_sum: add",
    ),
    Broken(
        call="sum_by_the_last_program",
        old="if tl.atomic_add(counter, 1) == PROGRAMS - 1:",
        new="if tl.program_id(0) == PROGRAMS - 1:",
        kind=RACE,
        line="# last_one: all",
    ),
    Broken(
        call="sum_by_the_last_program",
        old="if tl.atomic_add(counter, 1) == PROGRAMS - 1:",
        new='if tl.atomic_add(counter, 1, sem="relaxed") == PROGRAMS - 1:',
        kind=RACE,
        line="# last_one: all",
    ),
    Broken(
        call="sum_by_the_last_program",
        old="tl.load(parts + tl.arange(0, PROGRAMS)), axis=0))  # last_one",
        new="tl.load(parts + 1 + tl.arange(0, PROGRAMS)), axis=0))  # last_one",
        kind=BOUNDS,
        line="# last_one: all",
    ),
    Broken(
        call="sum_under_a_lock",
        old="    while tl.atomic_cas(lock, 0, 1) == 1:\n        pass\n",
        new="",
        kind=RACE,
        line="# locked: sum",
    ),
    Broken(
        call="sum_under_a_lock",
        old="    tl.store(total + j, tl.load(total + j, mask=j < n) + v, mask=j < n)  # locked: sum\n"
        "    tl.atomic_xchg(lock, 0)\n",
        new="    tl.atomic_xchg(lock, 0)\n"
        "    tl.store(total + j, tl.load(total + j, mask=j < n) + v, mask=j < n)  # locked: sum\n",
        kind=RACE,
        line="# locked: sum",
    ),
    Broken(
        call="matmul",
        old="total, mask=inside)  # matmul: store",
        new="total, mask=rows[:, None] < M)  # matmul: store",
        kind=RACE,
        line="# matmul: store",
    ),
    Broken(
        call="matmul",
        old="tl.store(c + rows[:, None] * N + columns[None, :], total, mask=inside)  # matmul: store",
        new="tl.store(c + rows[:, None] * N + columns[None, :], total)  # matmul: store",
        kind=BOUNDS,
        line="# matmul: store",
    ),
    Broken(
        call="matmul_with_a_split_sum",
        old="tl.atomic_add(c + rows[:, None] * N + columns[None, :], total, mask=inside)  # split: add",
        new="tl.store(c + rows[:, None] * N + columns[None, :], total, mask=inside)  # split: add",
        kind=RACE,
        line="# split: add",
    ),
    Broken(
        call="matmul_by_block_pointers",
        old="tl.store(z, total, boundary_check=(0, 1))",
        new="tl.store(z, total, boundary_check=(1,))",
        kind=BOUNDS,
        line="# block_pointer: store",
    ),
    Broken(
        call="transpose",
        old="tl.store(out + j[:, None] * rows + i[None, :]",
        new="tl.store(out + j[:, None] * columns + i[None, :]",
        kind=RACE,
        line="tl.store(out + j[:, None] * columns + i[None, :]",
    ),
    Broken(
        call="embedding",
        old="source = tl.load(index + row)",
        new="source = tl.load(index + row) + 1",
        kind=BOUNDS,
        line="# gather: read",
    ),
    Broken(
        call="scatter_add",
        old="tl.atomic_add(out + place, tl.load(x + i, mask=i < n), mask=i < n)",
        new="tl.store(out + place, tl.load(out + place) + tl.load(x + i, mask=i < n), mask=i < n)",
        kind=RACE,
        line="# scatter: add",
    ),
    Broken(
        call="layer_norm",
        old="w, b = tl.load(weight + j, mask=j < n), tl.load(bias + j, mask=j < n)",
        new="w, b = tl.load(weight + j, mask=j < n), tl.load(bias + j - 1, mask=j < n)",
        kind=BOUNDS,
        line="# layer_norm: weights",
    ),
    Broken(
        call="convolution",
        old="mask=(at >= 0) & (at < n), other=0.0)",
        new="mask=at < n, other=0.0)",
        kind=BOUNDS,
        line="# convolution: read",
    ),
    Broken(
        call="convolution",
        old="convolution_kernel[(4,)](x, weight, out, 200, TAPS=5, BLOCK=64)",
        new="convolution_kernel[(4,)](x, weight, x, 200, TAPS=5, BLOCK=64)",
        kind=RACE,
        line="# convolution: read",
    ),
    Broken(
        call="unpack_four_bits",
        old="tl.store(out + 2 * i + 1, ((v >> 4) & 15) - 8, mask=i < n)",
        new="tl.store(out + i // 2, ((v >> 4) & 15) - 8, mask=i < n)",
        kind=RACE,
        line="tl.store(out + i // 2",
    ),
)
