"""What builds fork from: many harvests get a process that has loaded what each of them would load."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.sandbox.zygote import ZygoteError
from harness.toolchain import BuilderZygotes, zygotes
from harness.toolchain.zygotes import MANY_HARVESTS

LIMIT_S = 60.0

FIRST_OPERATION = """
import sys
{before}
import torch
real = torch.cuda.is_available
known = set(sys.modules)
x = torch.relu(torch.empty(3, 4, device="meta")) @ torch.empty(4, 2, device="meta")
print(len([name for name in set(sys.modules) - known if name.startswith("torch.")]))
assert torch.cuda.is_available is real
assert torch.cuda.is_available.__module__ == "torch.cuda"
"""


def until(so: Callable[[], bool]) -> bool:
    end_s = time.monotonic() + LIMIT_S
    while not so() and time.monotonic() < end_s:
        time.sleep(0.01)
    return so()


def loaded_by_the_first_operation(before: str) -> int:
    """Modules of torch."""
    command = [sys.executable, "-c", FIRST_OPERATION.format(before=before)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout)


def test_a_first_operation_without_contents_finds_all_loaded() -> None:
    loaded = loaded_by_the_first_operation("import harness.toolchain.preload_meta")
    assert loaded == 0
    # Else torch has become such that nobody needs the module.
    assert loaded_by_the_first_operation("") > 50


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygotes, "_WITH_TORCH", ("json",))
    monkeypatch.setattr(zygotes, "_WITH_META", ("json", "decimal"))


@pytest.mark.usefixtures("light")
def test_many_harvests_get_a_process_of_their_own_once_it_is_there() -> None:
    with BuilderZygotes() as held:
        assert [held.for_harvest() for _ in range(MANY_HARVESTS - 1)] == [held.torch] * (MANY_HARVESTS - 1)
        assert not held._meta.started, "few harvests don't pay for it"
        held.for_harvest()
        assert held._meta.started
        assert until(lambda: held._meta.ready)
        assert held.for_harvest() is held._meta
        held._meta.close()
        assert held.for_harvest() is held.torch


def test_where_it_can_not_be_had_harvests_go_on_as_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(zygotes, "_WITH_TORCH", ("json",))
    monkeypatch.setattr(zygotes, "_WITH_META", ("json", "no_such_module_at_all"))
    with BuilderZygotes(tmp_path / "log") as held:
        for _ in range(MANY_HARVESTS):
            assert held.for_harvest() is held.torch
        with pytest.raises(ZygoteError, match="no_such_module_at_all"):
            held._meta.wait_ready()
        assert held.for_harvest() is held.torch


@pytest.mark.usefixtures("light")
def test_after_the_end_none_is_begun() -> None:
    held = BuilderZygotes()
    held.close()
    for _ in range(MANY_HARVESTS + 1):
        assert held.for_harvest() is held.torch
    assert not held._meta.started
