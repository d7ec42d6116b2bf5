"""Silence on the GPU: tools that have a kernel there are stopped, let go on for a while, and stopped again."""

from __future__ import annotations

import pytest

from harness import hush
from harness.contention import Look
from harness.hush import GO_ON_S, Hush


class Tools:
    """Stands in for an auditor, of whose tools one has a kernel on the GPU for the next `looks` looks.

    What real tools do there takes a GPU: `test_disturbance_gpu.py` and `test_audit.py`.
    """

    def __init__(self, looks: int, *, ends_after: int | None = None) -> None:
        self.looks = looks
        self.told: list[str] = []
        self._ends_after = ends_after

    def hold(self) -> bool:
        self.told.append("hold")
        return self._ends_after is None or self.told.count("hold") <= self._ends_after

    def loosen(self) -> None:
        self.told.append("loosen")

    def drain(self) -> None:
        self.told.append("drain")

    def release(self) -> None:
        self.told.append("release")

    def look(self, device_index: int, limit_s: float) -> Look:
        self.looks -= 1
        return Look(alone=self.looks < 0, waited_s=0.0, widest_gap_s=0.0)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    taken: list[float] = []
    monkeypatch.setattr("time.sleep", taken.append)
    return taken


def silence(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(hush, "wait_until_alone", tools.look)
    with Hush(tools, 0).held():  # type: ignore[arg-type]
        told = list(tools.told)
    assert tools.told[-1] == "release"
    return told


def test_what_has_left_the_gpu_is_only_stopped(monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> None:
    assert silence(Tools(0), monkeypatch) == ["hold"]
    assert slept == []


def test_a_kernel_that_waits_for_its_tool_is_let_come_to_its_end(
    monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    """Not the whole audit, which may just have begun to open its device."""
    assert silence(Tools(2), monkeypatch) == ["hold", "loosen", "hold", "loosen", "hold"]
    assert slept == list(GO_ON_S[:2])


def test_nothing_is_waited_for_once_no_audit_is_under_way(monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> None:
    assert silence(Tools(9, ends_after=1), monkeypatch) == ["hold", "loosen", "hold"]


def test_an_endless_one_is_waited_for_in_the_end(monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> None:
    told = silence(Tools(99), monkeypatch)
    assert told == ["hold", *["loosen", "hold"] * len(GO_ON_S), "drain"]
    assert slept == list(GO_ON_S)
