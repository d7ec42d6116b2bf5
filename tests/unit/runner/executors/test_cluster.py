"""What a cluster is asked for: never more than leaves room for a build, and nothing of one where nobody answers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.choices import DeviceKind
from harness.runner.executors import ExecutorError
from harness.runner.executors.cluster import Node, check_answers, demand, nodes_of

GPU_NODE = Node(cpus=16, gpus=4, models=frozenset({"H200"}))


def test_nodes_are_read_from_what_ray_lists() -> None:
    listing = [
        {"Alive": True, "Resources": {"CPU": 8.0, "GPU": 2.0, "accelerator_type:H200": 1.0, "node:10.0.0.1": 1.0}},
        {"Alive": False, "Resources": {"CPU": 64.0}},
        {"Alive": True, "Resources": {"memory": 1.0}},
    ]
    assert nodes_of(listing) == [Node(cpus=8, gpus=2, models=frozenset({"H200"})), Node(cpus=0)]


def test_a_judge_a_gpu_with_a_processor_of_its_own_and_builds_on_the_others() -> None:
    asked = demand([GPU_NODE, Node(cpus=32)], DeviceKind.CUDA, workers=None, model=None)
    assert (asked.judges, asked.judge_cpus, asked.build_cpus, asked.builders) == (4, 1.0, 2.0, 22)
    assert demand([GPU_NODE], DeviceKind.CUDA, workers=2, model="H200").judges == 2


def test_on_the_host_device_a_judge_a_node_that_offers_processors() -> None:
    nodes = [Node(cpus=0), Node(cpus=2), Node(cpus=4)]
    asked = demand(nodes, DeviceKind.HOST, workers=None, model=None)
    assert (asked.judges, asked.builders) == (2, 4)
    assert demand(nodes, DeviceKind.HOST, workers=7, model=None).judges == 7


@given(
    st.lists(st.builds(Node, cpus=st.integers(1, 64), gpus=st.integers(0, 8)), min_size=1, max_size=4),
    st.sampled_from(DeviceKind),
)
def test_builds_find_room_beside_all_judges_whichever_nodes_are_left(nodes: list[Node], device: DeviceKind) -> None:
    if device is DeviceKind.CUDA and not any(node.gpus for node in nodes):
        return
    asked = demand(nodes, device, workers=None, model=None)
    assert asked.judges >= 1
    assert asked.builders >= 1
    if device is DeviceKind.HOST:  # one node is left, and has taken all judges
        assert all(node.cpus - asked.judges * asked.judge_cpus >= asked.build_cpus for node in nodes)
    else:  # judges stay with GPUs, and the last node that has any builds too
        room = [node.cpus - node.gpus * asked.judge_cpus for node in nodes if node.gpus]
        assert all(free >= asked.build_cpus for free in room)


@pytest.mark.parametrize(
    ("nodes", "device", "model", "said"),
    [
        ([], DeviceKind.HOST, None, "has no CPU for builds"),
        ([Node(cpus=0)], DeviceKind.HOST, None, "has no CPU for builds"),
        ([Node(cpus=4)], DeviceKind.CUDA, None, "has no GPU; pass --device host"),
        ([GPU_NODE], DeviceKind.CUDA, "A100", r"no GPU of accelerator type A100 \(available: H200\)"),
    ],
)
def test_what_a_cluster_lacks_is_said(nodes: list[Node], device: DeviceKind, model: str | None, said: str) -> None:
    with pytest.raises(ExecutorError, match=said):
        demand(nodes, device, workers=None, model=model)


@pytest.mark.parametrize("form", ["{}", "ray://{}"])
def test_an_address_where_nobody_answers_is_said_at_once(form: str) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = form.format(f"127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(ExecutorError, match=f"no Ray cluster answers at {address}: .*refused"):
            check_answers(address)
        listening.listen()
        check_answers(address)


def test_auto_is_the_cluster_of_the_environment_or_the_one_started_last_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    check_answers("auto")  # none is known: Ray says so itself
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        gone = f"127.0.0.1:{unused.getsockname()[1]}"
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / "ray_current_cluster").write_text(f"{gone}\n")
        with pytest.raises(ExecutorError, match=rf"answers at {gone} \(auto\)"):
            check_answers("auto")
        monkeypatch.setenv("RAY_ADDRESS", f"ray://{gone}")
        with pytest.raises(ExecutorError, match=rf"answers at ray://{gone} \(auto\)"):
            check_answers("auto")
    check_answers(None)
