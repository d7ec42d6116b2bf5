"""Shards: every item in exactly one part, neighbours together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.config import ConfigError, Machine, resolve
from harness.model import DeviceKind
from harness.planning import part


@given(st.integers(0, 200), st.integers(1, 40))
def test_shards_are_a_partition_of_nearly_equal_parts(size: int, count: int) -> None:
    items = list(range(size))
    parts = [part(items, f"{n}/{count}") for n in range(1, count + 1)]
    assert [item for held in parts for item in held] == items
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert part(items, None) == items


@pytest.mark.parametrize("wrong", ["0/3", "4/3", "1", "1/0", "a/b", "1/-2", 3])
def test_a_shard_that_can_not_be_is_said(wrong: object) -> None:
    machine = Machine(device=DeviceKind.HOST, cpu_count=1, memory_bytes=2**33)
    with pytest.raises(ConfigError, match=r"`shard` must be i/n"):
        resolve(machine=machine, run_id="r", options={"paths": ["x"], "shard": wrong})
