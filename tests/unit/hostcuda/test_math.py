"""Device arithmetic of the host device against torch, numpy and exact rationals."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.paths import ROOT, TESTS

INCLUDE = ROOT / "harness" / "hostcuda" / "include"
PROBE = TESTS / "hostcuda" / "math_probe.cpp"
DIRECTIONS = ("rn", "rz", "ru", "rd")
ALL16 = np.arange(65536, dtype=np.uint16)

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is needed to compile the device headers")


def _has_f16c() -> bool:
    info = Path("/proc/cpuinfo")
    return info.exists() and " f16c " in info.read_text() + " "


@pytest.fixture(scope="module", params=["portable", "f16c"])
def probe(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., np.ndarray]:
    """Calls a function of math_probe.cpp on arrays; twice, for the portable and the processor's own conversions."""
    if request.param == "f16c" and not _has_f16c():
        pytest.skip("this processor has no F16C instructions")
    target = tmp_path_factory.mktemp("math") / f"{request.param}.so"
    flags = ["-mf16c", "-mfma"] if request.param == "f16c" else []
    command = ["g++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", *flags]
    subprocess.run([*command, f"-I{INCLUDE}", str(PROBE), "-o", str(target)], check=True, capture_output=True)
    library = ctypes.CDLL(str(target))

    def call(name: str, out: type, *arrays: np.ndarray) -> np.ndarray:
        arrays = tuple(np.ascontiguousarray(array) for array in arrays)
        result = np.empty(arrays[0].size, dtype=out)
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (result, *arrays)]
        getattr(library, name)(*pointers, ctypes.c_size_t(result.size))
        return result

    call.library = library  # type: ignore[attr-defined]
    return call


def _as_half(bits: np.ndarray) -> np.ndarray:
    return bits.view(np.float16)


def _as_bfloat16(bits: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(bits.view(np.int16).copy()).view(torch.bfloat16)


def _widened(bits: np.ndarray, kind: str) -> np.ndarray:
    """Float64 values of 16-bit codes."""
    if kind == "half":
        return _as_half(bits).astype(np.float64)
    return _as_bfloat16(bits).to(torch.float64).numpy()


def _hard_floats(seed: int) -> np.ndarray:
    """Random bit patterns, and values at, next to and between the numbers of both 16-bit formats."""
    generator = np.random.default_rng(seed)
    patterns = generator.integers(0, 2**32, 200_000, dtype=np.uint64).astype(np.uint32)
    for low, keep in ((13, 0xFFFFE000), (16, 0xFFFF0000)):
        base = patterns[:50_000] & np.uint32(keep)
        tie = base | np.uint32(1 << (low - 1))
        patterns = np.concatenate([patterns, base, tie, tie - np.uint32(1), tie + np.uint32(1)])
    near = generator.standard_normal(50_000).astype(np.float32).view(np.uint32)
    special = np.array(
        [0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x477FEFFF, 0x477FF000, 1, 0x33000000, 0x33000001]
    )
    return np.concatenate([patterns, near, special.astype(np.uint32)]).view(np.float32)


def test_every_half_and_bfloat16_widens_to_its_value(probe: Callable[..., np.ndarray]) -> None:
    np.testing.assert_array_equal(probe("half_to_float", np.float32, ALL16), _as_half(ALL16).astype(np.float32))
    np.testing.assert_array_equal(
        probe("bfloat16_to_float", np.float32, ALL16), _as_bfloat16(ALL16).to(torch.float32).numpy()
    )


def test_float_narrows_like_torch_and_nan_becomes_the_canonical_one(probe: Callable[..., np.ndarray]) -> None:
    values = _hard_floats(1)
    tensor = torch.from_numpy(values.copy())
    numbers = ~np.isnan(values)
    for name, kind in (("half", torch.float16), ("bfloat16", torch.bfloat16)):
        got = probe(f"float_to_{name}_rn", np.uint16, values)
        want = tensor.to(kind).view(torch.int16).numpy().view(np.uint16)
        np.testing.assert_array_equal(got[numbers], want[numbers])
        assert set(got[~numbers]) == {0x7FFF}


@pytest.mark.parametrize("kind", ["half", "bfloat16"])
def test_directed_roundings_bracket_the_value(probe: Callable[..., np.ndarray], kind: str) -> None:
    values = _hard_floats(2)
    values = values[np.isfinite(values)]
    exact = values.astype(np.float64)
    down, up, zero = (
        _widened(probe(f"float_to_{kind}_{direction}", np.uint16, values), kind) for direction in ("rd", "ru", "rz")
    )
    assert (down <= exact).all()
    assert (up >= exact).all()
    np.testing.assert_array_equal(zero, np.where(exact >= 0, down, up))
    # Neighbours, or equal: nothing lies between the two.
    codes = (
        probe(f"float_to_{kind}_rd", np.uint16, values).astype(np.int64),
        probe(f"float_to_{kind}_ru", np.uint16, values),
    )
    order = [
        np.where(code & 0x8000, -(code & 0x7FFF).astype(np.int64), (code & 0x7FFF).astype(np.int64)) for code in codes
    ]
    assert set(np.unique(order[1] - order[0])) <= {0, 1}
    np.testing.assert_array_equal(order[0] == order[1], down == exact)


def test_double_narrows_in_one_step(probe: Callable[..., np.ndarray]) -> None:
    # 1 + 2^-11 is a tie of half; the 2^-40 above it decides, and is lost by way of float.
    above = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11, 1 + 2.0**-11 - 2.0**-40])
    assert list(probe("double_to_half", np.uint16, above)) == [0x3C01, 0x3C00, 0x3C00]
    above = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8, 1 + 2.0**-8 - 2.0**-40])
    assert list(probe("double_to_bfloat16", np.uint16, above)) == [0x3F81, 0x3F80, 0x3F80]


@pytest.mark.parametrize(
    ("name", "dtype", "largest"), [("e4m3", torch.float8_e4m3fn, 448.0), ("e5m2", torch.float8_e5m2, 57344.0)]
)
def test_fp8_agrees_with_torch(probe: Callable[..., np.ndarray], name: str, dtype: torch.dtype, largest: float) -> None:
    codes = np.arange(256, dtype=np.uint8)
    want = torch.from_numpy(codes.copy()).view(dtype).to(torch.float32).numpy()
    np.testing.assert_array_equal(probe(f"{name}_to_float", np.float32, codes), want)
    values = np.concatenate([_hard_floats(3), np.linspace(-500, 500, 40_001, dtype=np.float32)])
    values = values[~np.isnan(values)]
    small = np.abs(values) < largest * 1.2
    got = torch.from_numpy(probe(f"{name}_nosat", np.uint8, values)).view(dtype).to(torch.float32).numpy()
    want = torch.from_numpy(values.copy()).to(dtype).to(torch.float32).numpy()
    # torch releases differ in what becomes of values far beyond the range (NaN or saturated), so those come below.
    fits = np.abs(values) <= largest
    np.testing.assert_array_equal(got[fits & small], want[fits & small])
    saturated = torch.from_numpy(probe(f"{name}_sat", np.uint8, values)).view(dtype).to(torch.float32).numpy()
    np.testing.assert_array_equal(saturated[~fits], np.copysign(np.float32(largest), values[~fits]))
    beyond = np.array([largest * 4, -math.inf], dtype=np.float32)
    assert list(probe(f"{name}_nosat", np.uint8, beyond)) == ([0x7F, 0xFF] if name == "e4m3" else [0x7C, 0xFC])


def _pairs16(seed: int, count: int = 300_000) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    first, second, third = (generator.integers(0, 65536, count, dtype=np.uint32).astype(np.uint16) for _ in range(3))
    near = (second & np.uint16(0x83FF)) | (first & np.uint16(0x7C00))  # of like size, where rounding matters
    second = np.where(generator.random(count) < 0.5, near, second).astype(np.uint16)
    return [first, second, third]


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize("kind", ["half", "bfloat16"])
def test_16_bit_arithmetic_rounds_once(probe: Callable[..., np.ndarray], kind: str, operation: str) -> None:
    first, second, _ = _pairs16(4)
    got = probe(f"{kind}_{operation}", np.uint16, first, second)
    function = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}[operation]
    # Double holds sums, differences and products of these numbers exactly, or far more exactly than a tie needs.
    exact = function(torch.from_numpy(_widened(first, kind)), torch.from_numpy(_widened(second, kind)))
    want = exact.numpy()
    name = "half" if kind == "half" else "bfloat16"
    rounded = probe(f"double_to_{name}", np.uint16, want)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(got[numbers], rounded[numbers])
    assert set(got[~numbers]) <= {0x7FFF}


def _nearest_code(value: Fraction, kind: str, zero: int) -> int:
    """Code of the 16-bit number nearest to a rational, ties to even; `zero` where the rational is zero."""
    significant, least = (10, -14) if kind == "half" else (7, -126)
    if value == 0:
        return zero
    sign = 0x8000 if value < 0 else 0
    size = abs(value)
    exponent = max((size.numerator.bit_length() - size.denominator.bit_length()) - 1, least)
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    unit = Fraction(2) ** (exponent - significant)
    steps = round(size / unit)  # Python rounds a Fraction half to even
    code = steps if exponent == least else ((exponent - least) << significant) + steps
    infinity = 0x7C00 if kind == "half" else 0x7F80
    return sign | min(code, infinity)


@pytest.mark.parametrize("kind", ["half", "bfloat16"])
def test_fused_multiply_add_is_exact_before_its_one_rounding(probe: Callable[..., np.ndarray], kind: str) -> None:
    first, second, third = _pairs16(5, 30_000)
    # Products that are ties, with an addend too small for double to keep: what plain double arithmetic gets wrong.
    tie = {"half": (0x3C01, 0x3C00 | 0x200, 0x0001), "bfloat16": (0x3F81, 0x3FC0, 0x0001)}[kind]
    first[:3], second[:3], third[:3] = tie[0], tie[1], (tie[2], 0x8000 | tie[2], 0)
    finite = np.ones(first.size, dtype=bool)
    for array in (first, second, third):
        finite &= np.isfinite(_widened(array, kind))
    first, second, third = first[finite], second[finite], third[finite]
    got = probe(f"{kind}_fma", np.uint16, first, second, third)
    values = [_widened(array, kind) for array in (first, second, third)]
    for index in range(first.size):
        a, b, c = (float(array[index]) for array in values)
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        zero = 0x8000 if math.copysign(1, a) * math.copysign(1, b) < 0 and math.copysign(1, c) < 0 else 0
        assert got[index] == _nearest_code(exact, kind, zero), (a, b, c)
    relu = probe(f"{kind}_fma_relu", np.uint16, first, second, third)
    assert (relu[got & 0x8000 != 0] == 0).all()
    saturated = _widened(probe(f"{kind}_fma_sat", np.uint16, first, second, third), kind)
    np.testing.assert_array_equal(saturated, np.clip(_widened(got, kind), 0, 1))


@pytest.mark.parametrize("kind", ["half", "bfloat16"])
def test_comparisons_and_extremes(probe: Callable[..., np.ndarray], kind: str) -> None:
    first, second, _ = _pairs16(6)
    second = np.where(np.arange(second.size) % 5 == 0, first, second).astype(np.uint16)
    x, y = _widened(first, kind), _widened(second, kind)
    unordered = np.isnan(x) | np.isnan(y)
    with np.errstate(invalid="ignore"):
        tests = [x == y, (x != y) & ~unordered, x < y, x <= y, x > y, x >= y, (x == y) | unordered,
                 (x != y) | unordered, (x < y) | unordered, x < y, x != y]  # fmt: skip
    want = sum(test.astype(np.uint32) << index for index, test in enumerate(tests))
    np.testing.assert_array_equal(probe(f"{kind}_compare", np.uint32, first, second), want)
    for name, function in (("max", np.fmax), ("min", np.fmin)):
        got = _widened(probe(f"{kind}_{name}", np.uint16, first, second), kind)
        np.testing.assert_array_equal(got, function(x, y))
    zeros = np.array([0x8000, 0x0000], dtype=np.uint16)
    assert list(probe(f"{kind}_max", np.uint16, zeros, zeros[::-1])) == [0, 0]
    assert list(probe(f"{kind}_min", np.uint16, zeros, zeros[::-1])) == [0x8000, 0x8000]
    strict = probe(f"{kind}_max_nan", np.uint16, first, second)
    assert set(strict[unordered]) == {0x7FFF}


@pytest.mark.parametrize("kind", ["half", "bfloat16"])
def test_16_bit_functions_over_all_codes(probe: Callable[..., np.ndarray], kind: str) -> None:
    x = torch.from_numpy(_widened(ALL16, kind))
    name = f"double_to_{kind}"
    for function, exact in (("sqrt", x.sqrt()), ("exp", x.exp()), ("log2", x.log2()), ("rsqrt", x.rsqrt()),
                            ("tanh", x.tanh()), ("rint", x.round())):  # fmt: skip
        got = probe(f"{kind}_{function}", np.uint16, ALL16).astype(np.int64)
        want = probe(name, np.uint16, exact.numpy()).astype(np.int64)
        same_nan = (got == 0x7FFF) & (want == 0x7FFF)
        difference = np.abs(got - want)[~same_nan]
        # One unit in the last place for what goes through a float function; nothing for what IEEE 754 defines.
        assert difference.max() <= (0 if function in ("sqrt", "rint") else 1), function
        assert (difference != 0).mean() < 0.001, function


@pytest.mark.parametrize("kind", ["half", "bfloat16"])
def test_16_bit_to_integer_saturates(probe: Callable[..., np.ndarray], kind: str) -> None:
    x = _widened(ALL16, kind)
    modes = {"rn": np.rint, "rz": np.trunc, "ru": np.ceil, "rd": np.floor}
    for direction, function in modes.items():
        with np.errstate(invalid="ignore"):  # signalling NaNs are among the codes
            whole = np.nan_to_num(function(x), nan=0.0, posinf=1e30, neginf=-1e30)
        want = np.clip(whole, -(2.0**31), 2.0**31 - 1).astype(np.int64)
        np.testing.assert_array_equal(probe(f"{kind}_to_int_{direction}", np.int32, ALL16).astype(np.int64), want)


def test_integers_to_16_bits_in_every_direction(probe: Callable[..., np.ndarray]) -> None:
    generator = np.random.default_rng(7)
    small = generator.integers(-70_000, 70_000, 20_000).astype(np.int32)
    for direction in DIRECTIONS:
        want = probe(f"float_to_half_{direction}", np.uint16, small.astype(np.float32))  # exact in float
        np.testing.assert_array_equal(probe(f"int_to_half_{direction}", np.uint16, small), want)
    # 2^60 + 2^52 is a tie of bfloat16; one more decides it, and is lost by way of double.
    tie = 2**60 + 2**52
    wide = np.array([tie, tie + 1, tie - 1], dtype=np.int64)
    assert list(probe("ll_to_bfloat16_rn", np.uint16, wide)) == [0x5D80, 0x5D81, 0x5D80]
    assert list(probe("ll_to_bfloat16_ru", np.uint16, wide)) == [0x5D81, 0x5D81, 0x5D81]
    assert list(probe("ll_to_bfloat16_rz", np.uint16, -wide)) == [0xDD80, 0xDD80, 0xDD80]


def _directed(exact: Fraction, direction: str, dtype: type) -> float:
    """The float of `dtype` that a rational rounds to in a direction."""
    nearest = dtype(float(exact)) if dtype is np.float64 else _nearest_float32(exact)
    if math.isinf(nearest):
        return float(nearest)
    found = Fraction(float(nearest))
    wants_up = direction == "ru" or (direction == "rz" and exact < 0)
    if direction == "rn" or found == exact:
        return float(nearest)
    if wants_up:
        return float(nearest if found > exact else np.nextafter(nearest, dtype(np.inf)))
    return float(nearest if found < exact else np.nextafter(nearest, dtype(-np.inf)))


def _nearest_float32(exact: Fraction) -> np.float32:
    start = np.float32(float(exact))
    candidates = [start, np.nextafter(start, np.float32(np.inf)), np.nextafter(start, np.float32(-np.inf))]
    finite = [value for value in candidates if np.isfinite(value)]

    def distance(value: np.float32) -> tuple[Fraction, int]:
        return abs(Fraction(float(value)) - exact), int(np.array(value).view(np.uint32)) & 1

    return min(finite, key=distance)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_named_roundings_are_exact(probe: Callable[..., np.ndarray], direction: str) -> None:
    generator = np.random.default_rng(8)
    x, y, z = (
        (generator.standard_normal(1500) * 2.0 ** generator.integers(-12, 12, 1500)).astype(np.float32)
        for _ in range(3)
    )
    cases = {
        "fadd": (2, lambda a, b, c: a + b),
        "fmul": (2, lambda a, b, c: a * b),
        "fdiv": (2, lambda a, b, c: a / b),
        "fmaf": (3, lambda a, b, c: a * b + c),
    }
    for name, (count, function) in cases.items():
        got = probe(f"{name}_{direction}", np.float32, *(x, y, z)[:count])
        for index in range(x.size):
            exact = function(*(Fraction(float(array[index])) for array in (x, y, z)))
            assert float(got[index]) == _directed(exact, direction, np.float32), (name, index)
    a, b, c = (generator.standard_normal(1500) * 2.0 ** generator.integers(-30, 30, 1500) for _ in range(3))
    added, fused = probe(f"dadd_{direction}", np.float64, a, b), probe(f"fma_{direction}", np.float64, a, b, c)
    for index in range(a.size):
        first, second, third = (Fraction(float(array[index])) for array in (a, b, c))
        assert float(added[index]) == _directed(first + second, direction, np.float64)
        assert float(fused[index]) == _directed(first * second + third, direction, np.float64)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_conversions_with_named_roundings(probe: Callable[..., np.ndarray], direction: str) -> None:
    generator = np.random.default_rng(9)
    ints = generator.integers(-(2**31), 2**31, 2000).astype(np.int32)
    longs = generator.integers(-(2**63), 2**63 - 1, 2000, dtype=np.int64) >> generator.integers(0, 50, 2000)
    unsigned = longs.view(np.uint64)
    doubles = generator.standard_normal(2000) * 2.0 ** generator.integers(-60, 60, 2000)
    for name, dtype, values in (("int_to_float", np.float32, ints), ("ll_to_float", np.float32, longs),
                                ("ull_to_double", np.float64, unsigned),
                                ("double_to_float", np.float32, doubles)):  # fmt: skip
        got = probe(f"{name}_{direction}", dtype, values)
        for index in range(values.size):
            exact = Fraction(int(values[index])) if values.dtype.kind in "iu" else Fraction(float(values[index]))
            assert float(got[index]) == _directed(exact, direction, dtype), (name, values[index])


def test_float_to_integer_saturates_and_nan_has_its_pattern(probe: Callable[..., np.ndarray]) -> None:
    values = np.array([2.5, 3.5, -2.5, 0.5, 1e20, -1e20, math.nan, 2147483648.0, -2147483904.0, -0.5], dtype=np.float32)
    assert list(probe("float_to_int_rn", np.int32, values)) == [
        2,
        4,
        -2,
        0,
        2**31 - 1,
        -(2**31),
        0,
        2**31 - 1,
        -(2**31),
        0,
    ]
    assert list(probe("float_to_int_ru", np.int32, values))[:4] == [3, 4, -2, 1]
    assert list(probe("float_to_int_rd", np.int32, values))[:4] == [2, 3, -3, 0]
    assert list(probe("float_to_uint_rz", np.uint32, values))[4:8] == [2**32 - 1, 0, 0, 2**31]
    wide = np.array([1e300, -1e300, math.nan, -2.5, 9007199254740993.0])
    assert list(probe("double_to_ll_rn", np.int64, wide)) == [2**63 - 1, -(2**63), -(2**63), -2, 9007199254740992]


def test_a_product_and_a_sum_with_names_are_not_fused(probe: Callable[..., np.ndarray]) -> None:
    x = np.float32(1 + 2**-12)
    exact = float(x) * float(x)
    rounded = np.float32(exact)
    assert float(rounded) != exact
    got = probe("multiply_then_add", np.float32, np.array([x]), np.array([x]), np.array([-rounded]))
    assert got[0] == 0.0


def test_tf32_rounds_ties_away(probe: Callable[..., np.ndarray]) -> None:
    values = np.array([1 + 2**-11, 1 + 2**-11 - 2**-20, -(1 + 2**-11), math.inf], dtype=np.float32)
    assert list(probe("tf32", np.float32, values)) == [1 + 2**-10, 1.0, -(1 + 2**-10), math.inf]


def _normal_distribution(x: torch.Tensor) -> torch.Tensor:
    # torch.special.ndtr gives 0 from -8 on, where the value is still representable.
    return torch.tensor([0.5 * math.erfc(-value / math.sqrt(2)) for value in x.tolist()], dtype=torch.float64)


def test_special_functions(probe: Callable[..., np.ndarray]) -> None:
    generator = np.random.default_rng(10)
    inside = np.concatenate([generator.uniform(-1, 1, 4000), [0.0, 1e-12, -1 + 1e-9, 0.999999]])
    probability = np.concatenate([generator.uniform(0, 1, 4000), 10.0 ** generator.uniform(-250, -1, 500)])
    reals = generator.uniform(-9, 40, 4000)
    cases = [
        ("erfinv_", inside, torch.special.erfinv),
        ("normcdf_", generator.uniform(-30, 8, 4000), _normal_distribution),
        ("normcdfinv_", probability, torch.special.ndtri),
        ("erfcx_", reals[reals > -5], torch.special.erfcx),
        ("bessel_i0", generator.uniform(-20, 20, 1000), torch.special.i0),
        ("bessel_i1", generator.uniform(-20, 20, 1000), torch.special.i1),
    ]
    for name, values, function in cases:
        want = function(torch.from_numpy(values.copy())).numpy()
        np.testing.assert_allclose(probe(name, np.float64, values), want, rtol=2e-9, atol=1e-300, err_msg=name)
    back = np.array([math.erfc(value) for value in probe("erfcinv_", np.float64, probability * 2)])
    np.testing.assert_allclose(back, probability * 2, rtol=1e-12)


def test_multiples_of_pi_are_exact(probe: Callable[..., np.ndarray]) -> None:
    values = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 1e15 + 0.5, -0.5, 7.25])
    sine, cosine = probe("sinpi_", np.float64, values), probe("cospi_", np.float64, values)
    assert list(sine[:7]) == [0, 1, 0, -1, 0, 1, -1]
    assert list(cosine[:7]) == [1, 0, -1, 0, 1, 0, 0]
    np.testing.assert_allclose(sine[7], -math.sqrt(0.5))


def test_documented_corners_of_fast_functions(probe: Callable[..., np.ndarray]) -> None:
    def one(name: str, *values: float) -> float:
        return float(probe(name, np.float32, *(np.array([value], dtype=np.float32) for value in values))[0])

    assert one("fdividef_", 1.0, 2.0**127) == 0.0
    assert math.isnan(one("fdividef_", math.inf, 2.0**127))
    assert one("fdividef_", 1.0, 4.0) == 0.25
    assert math.isnan(one("powf_", -2.0, 2.0))
    assert one("powf_", 2.0, 10.0) == 1024.0
    assert one("saturatef", math.nan) == 0.0
    assert [one("saturatef", value) for value in (-1.0, 0.25, 7.0)] == [0.0, 0.25, 1.0]
    assert one("rsqrtf_", 4.0) == 0.5
    assert one("exp10f_", 3.0) == pytest.approx(1000.0)


# ---- integers, against Python's unbounded ones


def _signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _lanes(word: int, count: int, signed: bool) -> list[int]:
    bits = 32 // count
    fields = [(word >> (bits * i)) & ((1 << bits) - 1) for i in range(count)]
    return [_signed(field, bits) for field in fields] if signed else fields


def _packed(values: list[int], count: int) -> int:
    bits = 32 // count
    return sum((value & ((1 << bits) - 1)) << (bits * i) for i, value in enumerate(values))


def _clamp(value: int, bits: int, signed: bool) -> int:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return max(low, min(high, value))


PACKED: dict[str, tuple[bool, Callable[[int, int, int], int]]] = {
    "vadd": (False, lambda a, b, n: a + b),
    "vsub": (False, lambda a, b, n: a - b),
    "vaddss": (True, lambda a, b, n: _clamp(a + b, n, True)),
    "vaddus": (False, lambda a, b, n: _clamp(a + b, n, False)),
    "vsubss": (True, lambda a, b, n: _clamp(a - b, n, True)),
    "vsubus": (False, lambda a, b, n: _clamp(a - b, n, False)),
    "vavgs": (True, lambda a, b, n: math.floor(Fraction(a + b + (a + b >= 0), 2))),
    "vavgu": (False, lambda a, b, n: (a + b + 1) // 2),
    "vhaddu": (False, lambda a, b, n: (a + b) // 2),
    "vmaxs": (True, lambda a, b, n: max(a, b)),
    "vmaxu": (False, lambda a, b, n: max(a, b)),
    "vmins": (True, lambda a, b, n: min(a, b)),
    "vminu": (False, lambda a, b, n: min(a, b)),
    "vabsdiffs": (True, lambda a, b, n: abs(a - b)),
    "vabsdiffu": (False, lambda a, b, n: abs(a - b)),
    "vcmpeq": (False, lambda a, b, n: -1 if a == b else 0),
    "vcmpgts": (True, lambda a, b, n: -1 if a > b else 0),
    "vcmpleu": (False, lambda a, b, n: -1 if a <= b else 0),
    "vsetges": (True, lambda a, b, n: 1 if a >= b else 0),
    "vsetltu": (False, lambda a, b, n: 1 if a < b else 0),
    "vabs": (True, lambda a, b, n: abs(a)),
    "vabsss": (True, lambda a, b, n: _clamp(abs(a), n, True)),
    "vneg": (True, lambda a, b, n: -a),
    "vnegss": (True, lambda a, b, n: _clamp(-a, n, True)),
}


def _words(seed: int, count: int = 3000) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    arrays = [generator.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32) for _ in range(3)]
    corners = np.array([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80008000, 0x80808080, 0x7FFF7FFF], dtype=np.uint32)
    grid = np.array(np.meshgrid(corners, corners)).reshape(2, -1)
    return [
        np.concatenate([arrays[0], grid[0]]),
        np.concatenate([arrays[1], grid[1]]),
        np.concatenate([arrays[2], grid[1][::-1]]),
    ]


@pytest.mark.parametrize("lanes", [2, 4])
def test_packed_integers(probe: Callable[..., np.ndarray], lanes: int) -> None:
    first, second, _ = _words(11)
    for name, (signed, function) in PACKED.items():
        arguments = (first,) if name in ("vabs", "vabsss", "vneg", "vnegss") else (first, second)
        got = probe(f"{name}{lanes}_", np.uint32, *arguments)
        for index in range(first.size):
            a, b = (_lanes(int(array[index]), lanes, signed) for array in (first, second))
            want = _packed([function(x, y, 32 // lanes) for x, y in zip(a, b, strict=True)], lanes)
            assert int(got[index]) == want, (name, hex(first[index]), hex(second[index]))
    for name, signed in (("vsads", True), ("vsadu", False)):
        got = probe(f"{name}{lanes}_", np.uint32, first, second)
        for index in range(first.size):
            a, b = (_lanes(int(array[index]), lanes, signed) for array in (first, second))
            assert int(got[index]) == sum(abs(x - y) for x, y in zip(a, b, strict=True)), name


def _nth_set(mask: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if mask >> base & 1 else 2**32 - 1
    positions = [p for p in (range(base, 32) if offset > 0 else range(base, -1, -1)) if mask >> p & 1]
    return positions[abs(offset) - 1] if len(positions) >= abs(offset) else 2**32 - 1


def _permuted(x: int, y: int, selector: int) -> int:
    data = x.to_bytes(4, "little") + y.to_bytes(4, "little")
    return int.from_bytes(bytes(data[selector >> (4 * i) & 7] for i in range(4)), "little")


INTEGERS: dict[str, Callable[[int, int, int], int]] = {
    "popc": lambda x, y, z: x.bit_count(),
    "clz": lambda x, y, z: 32 - x.bit_length(),
    "ffs_": lambda x, y, z: (x & -x).bit_length(),
    "brev": lambda x, y, z: int(f"{x:032b}"[::-1], 2),
    "byte_perm": _permuted,
    "funnel_l": lambda x, y, z: ((y << 32 | x) << (z & 31)) >> 32,
    "funnel_lc": lambda x, y, z: ((y << 32 | x) << min(z, 32)) >> 32,
    "funnel_r": lambda x, y, z: (y << 32 | x) >> (z & 31),
    "funnel_rc": lambda x, y, z: (y << 32 | x) >> min(z, 32),
    "mul24": lambda x, y, z: _signed(x, 24) * _signed(y, 24),
    "umul24": lambda x, y, z: (x & 0xFFFFFF) * (y & 0xFFFFFF),
    "mulhi": lambda x, y, z: (_signed(x) * _signed(y)) >> 32,
    "umulhi": lambda x, y, z: (x * y) >> 32,
    "hadd_": lambda x, y, z: (_signed(x) + _signed(y)) >> 1,
    "urhadd": lambda x, y, z: (x + y + 1) >> 1,
    "sad": lambda x, y, z: abs(_signed(x) - _signed(y)) + z,
    "dp4a": lambda x, y, z: sum(a * b for a, b in zip(_lanes(x, 4, True), _lanes(y, 4, True), strict=True)) + z,
    "udp4a": lambda x, y, z: sum(a * b for a, b in zip(_lanes(x, 4, False), _lanes(y, 4, False), strict=True)) + z,
    "dp2a_lo": lambda x, y, z: sum(a * b for a, b in zip(_lanes(x, 2, True), _lanes(y, 4, True)[:2], strict=True)) + z,
    "udp2a_hi": lambda x, y, z: (
        sum(a * b for a, b in zip(_lanes(x, 2, False), _lanes(y, 4, False)[2:], strict=True)) + z
    ),
    "fns": lambda x, y, z: _nth_set(x, y & 31, z % 65 - 32),
    "viaddmax": lambda x, y, z: max(_signed(x + y), _signed(z)),
    "vimax3_relu": lambda x, y, z: max(_signed(x), _signed(y), _signed(z), 0),
    "viaddmax_s16x2": lambda x, y, z: _packed(
        [max(_signed(a + b, 16), c) for a, b, c in zip(*(_lanes(w, 2, True) for w in (x, y, z)), strict=True)], 2
    ),
    "max_mixed": lambda x, y, z: max(x, y),
}


def test_integer_intrinsics(probe: Callable[..., np.ndarray]) -> None:
    words = _words(12)
    words[2][::3] %= 40  # shifts near their limit
    for name, function in INTEGERS.items():
        count = {"popc": 1, "clz": 1, "ffs_": 1, "brev": 1}.get(
            name, function.__code__.co_argcount if name in THREE else 2
        )
        got = probe(name, np.uint32, *words[:count])
        for index in range(words[0].size):
            x, y, z = (int(array[index]) for array in words)
            assert int(got[index]) == function(x, y, z) % 2**32, (name, hex(x), hex(y), hex(z))


THREE = {"byte_perm", "funnel_l", "funnel_lc", "funnel_r", "funnel_rc", "sad", "dp4a", "udp4a", "dp2a_lo", "udp2a_hi",
         "fns",
         "viaddmax", "vimax3_relu", "viaddmax_s16x2"}  # fmt: skip


def test_64_bit_intrinsics(probe: Callable[..., np.ndarray]) -> None:
    generator = np.random.default_rng(13)
    x, y = (generator.integers(0, 2**64, 2000, dtype=np.uint64) for _ in range(2))
    pairs = [(int(a), int(b)) for a, b in zip(x, y, strict=True)]
    assert [int(v) for v in probe("umul64hi", np.uint64, x, y)] == [(a * b) >> 64 for a, b in pairs]
    assert [int(v) for v in probe("mul64hi", np.uint64, x, y)] == [
        ((_signed(a, 64) * _signed(b, 64)) >> 64) % 2**64 for a, b in pairs
    ]
    assert [int(v) for v in probe("brevll", np.uint64, x)] == [int(f"{a:064b}"[::-1], 2) for a, _ in pairs]
    small = x >> np.uint64(37)
    assert [int(v) for v in probe("clzll", np.int32, small)] == [64 - int(a).bit_length() for a in small]


LAYOUTS = {
    "char1": (1, 1), "char2": (2, 2), "char3": (3, 1), "char4": (4, 4), "uchar4": (4, 4), "short2": (4, 4),
    "short3": (6, 2), "short4": (8, 8), "ushort4": (8, 8), "int1": (4, 4), "int2": (8, 8), "int3": (12, 4),
    "int4": (16, 16), "uint4": (16, 16), "long2": (16, 16), "longlong2": (16, 16), "longlong4": (32, 16),
    "float1": (4, 4), "float2": (8, 8), "float3": (12, 4), "float4": (16, 16), "double2": (16, 16),
    "double3": (24, 8), "double4": (32, 16), "double4_16a": (32, 16), "double4_32a": (32, 32),
    "__half": (2, 2), "__half2": (4, 4), "__nv_bfloat16": (2, 2), "__nv_bfloat162": (4, 4),
    "__nv_fp8_e4m3": (1, 1), "__nv_fp8x2_e5m2": (2, 2), "__nv_fp8x4_e4m3": (4, 4),
}  # fmt: skip


def test_types_have_the_size_and_alignment_of_a_gpu(probe: Callable[..., np.ndarray]) -> None:
    class Layout(ctypes.Structure):
        _fields_ = [("name", ctypes.c_char_p), ("size", ctypes.c_size_t), ("alignment", ctypes.c_size_t)]

    library = probe.library  # type: ignore[attr-defined]
    library.layout_at.restype = ctypes.POINTER(Layout)
    entries = [library.layout_at(ctypes.c_size_t(i)).contents for i in range(library.layout_count())]
    assert {entry.name.decode(): (entry.size, entry.alignment) for entry in entries} == LAYOUTS


def test_torch_scalars_cross_without_a_change_of_bits(probe: Callable[..., np.ndarray]) -> None:
    library = probe.library  # type: ignore[attr-defined]
    library.torch_half_round_trip.restype = ctypes.c_uint16
    assert [library.torch_half_round_trip(ctypes.c_uint16(bits)) for bits in (0, 0x3C00, 0xFBFF)] == [0, 0x3C00, 0xFBFF]


@pytest.mark.parametrize(
    ("switch", "source", "fails"),
    [
        ("__CUDA_NO_HALF_OPERATORS__", "__half f(__half a) { return a + a; }", True),
        ("__CUDA_NO_HALF_CONVERSIONS__", "float f(__half a) { return a; }", True),
        ("__CUDA_NO_HALF2_OPERATORS__", "__half2 f(__half2 a) { return a * a; }", True),
        ("__CUDA_NO_BFLOAT16_CONVERSIONS__", "__nv_bfloat16 f(float a) { return a; }", True),
        ("__CUDA_NO_HALF_OPERATORS__", "__half f(__half a) { return __hadd(a, a); }", False),
    ],
)
def test_the_switches_that_torch_sets_take_effect(tmp_path: Path, switch: str, source: str, fails: bool) -> None:
    file = tmp_path / "switch.cpp"
    file.write_text(f'#include "cuda_bf16.h"\n{source}\n')
    for flags, expected in (([], False), ([f"-D{switch}"], fails)):
        done = subprocess.run(
            ["g++", "-std=c++17", f"-I{INCLUDE}", "-fsyntax-only", *flags, str(file)], capture_output=True
        )
        assert (done.returncode != 0) == expected
