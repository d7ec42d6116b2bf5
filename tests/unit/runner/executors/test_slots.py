"""CUDA_VISIBLE_DEVICES as CUDA reads it, over environments made up here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.choices import DeviceKind
from harness.core.config import Machine, resolve
from harness.core.environment import Environment, Gpu, MachineError, collect
from harness.core.visible_gpus import capabilities_in_use, visible_gpus
from harness.runner.executors import BuildRequest, ExecutorError
from harness.runner.executors.local import LocalExecutor
from harness.runner.executors.node import build
from harness.runner.executors.slots import seats


def gpu(index: int, capability: str | None = "9.0") -> Gpu:
    return Gpu(
        index=index,
        name="NVIDIA H200",
        uuid=f"GPU-{index}{index}{index}{index}-0000",
        compute_capability=capability,
        memory_bytes=None,
        sm_clock_max_mhz=None,
        memory_clock_max_mhz=None,
        power_limit_w=None,
        ecc=None,
        mig=None,
        persistence=None,
    )


def machine(visible: str | None, count: int = 4) -> Environment:
    return replace(collect(), gpus=tuple(gpu(n) for n in range(count)), cuda_visible_devices=visible)


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (None, [0, 1, 2, 3]),
        ("2,0", [2, 0]),
        ("GPU-3333", [3]),
        ("GPU-1111-0000, 2", [1, 2]),
        ("1,9,2", [1]),
        ("0,0", [0]),
        ("", []),
        ("-1", []),
        ("GPU-", []),
    ],
)
def test_visible_gpus_are_those_cuda_would_show(visible: str | None, found: list[int]) -> None:
    assert [item.index for item in visible_gpus(machine(visible))] == found


@pytest.mark.parametrize(
    ("visible", "workers", "found"),
    [
        (None, None, [(8, 0), (9, 0), (10, 0)]),
        (None, 1, [(9, 0)]),
        ("3,0", None, [(9, 0), (10, 0)]),
        ("3,0", 1, [(10, 0)]),
        ("GPU-1111,2", None, [(8, 0)]),
        ("2,4", None, [(8, 0)]),
        ("4", None, []),
        ("MIG-7", 1, [(8, 0), (9, 0), (10, 0)]),
        ("-1", None, []),
    ],
)
def test_what_is_compiled_for_is_what_the_slots_have(
    visible: str | None, workers: int | None, found: list[tuple[int, int]]
) -> None:
    gpus = tuple(gpu(place, kind) for place, kind in enumerate(("9.0", "8.0", "8.0", "10.0", None)))
    assert capabilities_in_use(replace(machine(visible), gpus=gpus), workers) == tuple(found)


@pytest.mark.parametrize(("workers", "found"), [(None, ((8, 0), (9, 0))), (1, ((9, 0),))])
def test_a_run_builds_for_the_gpus_that_it_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int | None, found: tuple[tuple[int, int], ...]
) -> None:
    asked: list[object] = []

    def open_toolchain(*_: object, capabilities: object, **__: object) -> None:
        asked.append(capabilities)
        raise MachineError("far enough")

    monkeypatch.setattr("harness.runner.executors.local.open_toolchain", open_toolchain)
    config = resolve(
        machine=Machine(device=DeviceKind.CUDA, cpu_count=8, memory_bytes=2**36),
        run_id="r",
        options={"paths": ["x"], "workers": workers},
    )
    mixed = replace(machine("0,2"), gpus=tuple(gpu(place, kind) for place, kind in enumerate(("9.0", "10.0", "8.0"))))
    with pytest.raises(MachineError, match="far enough"):
        LocalExecutor(config, mixed, tmp_path)
    assert asked == [found]


@pytest.mark.parametrize(("capability", "found"), [((8, 0), ((8, 0),)), (None, ())])
def test_a_node_of_a_cluster_builds_for_the_judges_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int] | None, found: tuple[object, ...]
) -> None:
    asked: list[object] = []

    def open_toolchain(*_: object, capabilities: object, **__: object) -> None:
        asked.append(capabilities)
        raise MachineError("far enough")

    monkeypatch.setattr("harness.runner.executors.node.open_toolchain", open_toolchain)
    config = resolve(
        machine=Machine(device=DeviceKind.CUDA, cpu_count=8, memory_bytes=2**36),
        run_id="r",
        options={"paths": ["x"], "cache_dir": tmp_path},
    )
    order = BuildRequest(source="", filename="s.py", arguments=None, log_path=tmp_path / "log")
    with pytest.raises(MachineError, match="far enough"):
        build(order, config, False, capability)
    assert asked == [found]


@pytest.mark.parametrize(("workers", "count"), [(None, 4), (1, 1), (2, 2), (9, 4)])
def test_each_gpu_has_a_slot_whose_processes_see_no_other(workers: int | None, count: int) -> None:
    config = resolve(
        machine=Machine(device=DeviceKind.CUDA, cpu_count=8, memory_bytes=2**36),
        run_id="r",
        options={"paths": ["x"], "workers": workers},
    )
    held = seats(config, machine(None))
    assert len(held) == count
    for number, (slot, env) in enumerate(held):
        assert env["CUDA_VISIBLE_DEVICES"] == gpu(number).uuid
        assert slot.name == slot.environment["gpu_uuid"] == gpu(number).uuid
    with pytest.raises(ExecutorError, match="CUDA_VISIBLE_DEVICES"):
        seats(config, machine("7"))


def test_the_host_device_has_as_many_slots_as_asked_for() -> None:
    for workers, names in ((None, ["host"]), (1, ["host"]), (3, ["host-0", "host-1", "host-2"])):
        config = resolve(
            machine=Machine(device=DeviceKind.HOST, cpu_count=8, memory_bytes=2**36),
            run_id="r",
            options={"paths": ["x"], "workers": workers},
        )
        assert [slot.name for slot, _ in seats(config, machine(None, 0))] == names
