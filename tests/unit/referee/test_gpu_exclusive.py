"""Silence on the GPU: tools that have a kernel there are stopped, let go on for a while, and stopped again."""

from __future__ import annotations

import pytest

from harness.devices.gpu_sharing_probe import SharingProbe
from harness.referee import gpu_exclusive
from harness.referee.gpu_exclusive import GO_ON_S, GpuExclusive


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

    def announce(self) -> None:
        self.told.append("announce")

    def withdraw(self) -> None:
        self.told.append("withdraw")

    def loosen(self) -> None:
        self.told.append("loosen")

    def drain(self) -> None:
        self.told.append("drain")

    def release(self) -> None:
        self.told.append("release")

    def look(self, device_index: int, limit_s: float) -> SharingProbe:
        self.looks -= 1
        return SharingProbe(alone=self.looks < 0, waited_s=0.0, widest_gap_s=0.0)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    taken: list[float] = []
    monkeypatch.setattr("time.sleep", taken.append)
    return taken


def silence(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(gpu_exclusive, "wait_until_alone", tools.look)
    with GpuExclusive(tools, 0).held():  # type: ignore[arg-type]
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
    assert told == ["hold", *["loosen", "hold"] * len(GO_ON_S), "loosen", "hold", "drain"]
    assert slept == list(GO_ON_S)


def test_audits_of_solutions_that_were_not_evaluated_yet_are_given_up_first(
    monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    tools = Tools(99)

    def give_up() -> None:
        tools.told.append("give up")
        tools.looks = 0  # what stayed on the GPU was theirs

    monkeypatch.setattr(gpu_exclusive, "wait_until_alone", tools.look)
    with GpuExclusive(tools, 0, give_up_ahead=give_up).held():  # type: ignore[arg-type]
        assert tools.told[-4:] == ["hold", "loosen", "give up", "hold"]


def test_what_is_announced_is_held_when_silence_begins_or_withdrawn(
    monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    tools = Tools(0)
    monkeypatch.setattr(gpu_exclusive, "wait_until_alone", tools.look)
    silence = GpuExclusive(tools, 0)  # type: ignore[arg-type]
    silence.announce()
    with silence.held():
        assert tools.told == ["announce", "hold"]
    silence.announce()
    silence.withdraw()
    assert tools.told == ["announce", "hold", "release", "announce", "withdraw"]
    without = GpuExclusive(None, 0)
    without.announce()
    with without.held():
        without.withdraw()


class Clock:
    """Stands where the hush's module has `time`: passes where it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s

    def sleep(self, wait_s: float) -> None:
        self.now_s += wait_s


@pytest.mark.parametrize(
    ("before_s", "waited_s", "last_s"),
    [(0.5, 0.25, 0.5), (0.125, 0.25, 0.25), (2.0, 0.25, 1.25)],
    ids=["as before", "longer than before", "sooner than before"],
)
def test_what_stopping_takes_is_known_within_bounds_where_it_was_announced(
    monkeypatch: pytest.MonkeyPatch, before_s: float, waited_s: float, last_s: float
) -> None:
    """A gap's end is not announced: its silence takes as long as one did that was not, not what was left to wait."""
    clock, takes_s = Clock(), before_s

    class Slow(Tools):
        def hold(self) -> bool:
            clock.sleep(takes_s)
            return super().hold()

    tools = Slow(0)
    monkeypatch.setattr(gpu_exclusive, "time", clock)
    monkeypatch.setattr(gpu_exclusive, "wait_until_alone", tools.look)
    silence = GpuExclusive(tools, 0)  # type: ignore[arg-type]
    with silence.held():
        assert silence.last_s == before_s
    takes_s = waited_s
    silence.announce()
    clock.sleep(1.0)
    with silence.held():
        assert silence.last_s == last_s
    assert silence.waited_s == before_s + waited_s  # what it took beside other work is nobody's wait
    with silence.held():
        assert silence.last_s == waited_s


def test_contestants_start_while_nothing_is_timed_and_audits_stay_stopped(
    monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    tools, ahead = Tools(0), Tools(0)
    monkeypatch.setattr(gpu_exclusive, "wait_until_alone", tools.look)
    silence = GpuExclusive(tools, 0, ahead)  # type: ignore[arg-type]
    with silence.held():
        with silence.starts():
            assert ahead.told == ["hold", "release"]
        assert ahead.told == ["hold", "release", "hold"]
        assert tools.told == ["hold"]
    assert tools.told == ["hold", "release"]


def test_contestants_go_on_being_begun_while_silence_is_announced(
    monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    tools, ahead = Tools(0), Tools(0)
    monkeypatch.setattr(gpu_exclusive, "wait_until_alone", tools.look)
    silence = GpuExclusive(tools, 0, ahead)  # type: ignore[arg-type]
    silence.announce()
    silence.withdraw()
    assert ahead.told == []
    with silence.held():
        assert ahead.told == ["hold"]
    assert ahead.told == ["hold", "release"]
