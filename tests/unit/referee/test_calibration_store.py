"""What is known of a problem is kept on disk, for the next run on the same GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.core.choices import DeviceKind
from harness.core.stats import NoiseFloor
from harness.core.status import Status
from harness.devices import measured_peaks
from harness.devices.device import open_device
from harness.devices.measured_peaks import PeaksKey
from harness.protocol.messages import EmptyTimed, LaunchMode
from harness.referee.calibrate import Calibrator
from harness.referee.calibration_store import CalibrationStore
from harness.referee.referee import Referee
from harness.referee.soundness.degenerate import Soundness
from harness.referee.timing.calibration import Calibration
from harness.referee.timing.reference_timing import ProblemCalibration, ReferenceTiming
from harness.referee.worker import PRELOADED, PRELOADED_CUDA
from harness.sandbox.zygote import Zygote
from tests.unit.referee.test_calibration_cache import task, workspace
from tests.unit.referee.test_referee import config, problem

COST = Calibration(per_call_s=4e-4, spread_s=1e-5, bursts=5, least_s=3.8e-4)
QUIET = ReferenceTiming(
    reference_s=2e-3,
    floor=NoiseFloor(log_width=0.005, pairs=4),
    measured_log_width=0.003,
    least_log_width=0.005,
    peak_bytes=123,
    back_to_back_sets=16,
    queued_s=1.9e-3,
    refused={"graph": "calls wait"},
)
KNOWN = ProblemCalibration(
    quiet=QUIET, pauses=COST, sparing=COST, back_to_back={LaunchMode.QUEUED: COST}, process_bytes=7
)


def store(folder: Path, monkeypatch: pytest.MonkeyPatch, *, gpu: str = "one", **more: Any) -> CalibrationStore:
    monkeypatch.setattr(measured_peaks, "key_of", lambda device: PeaksKey(gpu_uuid=gpu, driver="580", torch="2.11"))
    settings = replace(config(DeviceKind.HOST), cache_dir=str(folder), **more)
    return CalibrationStore(settings, open_device(DeviceKind.HOST))


def test_another_run_reads_what_one_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the empty calls, which each referee times in its own process."""
    own = {0: EmptyTimed(few_s=1e-6, many_s=2e-6)}
    known = replace(KNOWN, quiet=replace(QUIET, empty_calls=own))
    store(tmp_path, monkeypatch).write(workspace(), known, lambda: ("zeros",))
    held = store(tmp_path, monkeypatch).read(workspace())
    assert held is not None
    assert held.calibration == KNOWN
    assert held.taken_for_right == ("zeros",)


def test_it_is_of_one_gpu_problem_workload_and_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(tmp_path, monkeypatch).write(workspace(), KNOWN, tuple)
    assert store(tmp_path, monkeypatch, gpu="other").read(workspace()) is None
    assert store(tmp_path, monkeypatch, gpu_memory_bytes=2**30).read(workspace()) is None
    # With this setting nothing tests whether the reference is deterministic.
    assert store(tmp_path, monkeypatch, allow_degenerate=True).read(workspace()) is None
    same = store(tmp_path, monkeypatch)
    assert same.read(workspace("b")) is None
    assert same.read(workspace(sizes={"n": 5})) is None
    assert same.read(workspace(sets=6)) is None
    assert same.read(workspace()) is not None


def test_neither_doubtful_ones_nor_secret_sizes_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unasked() -> tuple[str, ...]:
        pytest.fail("what is not kept is not looked at")

    secret = workspace()
    secret.workload = SimpleNamespace(name="secret-1", sizes={})
    kept = store(tmp_path, monkeypatch)
    kept.write(secret, KNOWN, unasked)
    kept.write(workspace(), replace(KNOWN, calm=False), unasked)
    kept.write(workspace(), replace(KNOWN, quiet=replace(QUIET, measured_log_width=0.03)), unasked)
    assert not list(tmp_path.rglob("*.json"))


def test_damaged_files_and_missing_folders_count_as_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = store(tmp_path, monkeypatch)
    kept.write(workspace(), KNOWN, tuple)
    (path,) = tmp_path.rglob("*.json")
    for damage in (path.read_bytes()[:-20], b"", b"[]", path.read_bytes().replace(b"per_call_s", b"per_cell_s")):
        path.write_bytes(damage)
        assert kept.read(workspace()) is None
    nowhere = CalibrationStore(replace(config(DeviceKind.HOST), cache_dir=None), open_device(DeviceKind.HOST))
    nowhere.write(workspace(), KNOWN, tuple)
    assert nowhere.read(workspace()) is None


def test_an_earlier_run_s_wrong_answers_are_not_looked_for_again() -> None:
    held: Any = SimpleNamespace(problem=problem(), key="any")
    assert Soundness(allow_degenerate=True, earlier=lambda _: ("zeros",)).check(held) == ("zeros",)


@pytest.mark.gpu
@pytest.mark.exclusive_gpu
def test_the_next_referee_recalls_what_one_learnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(config(DeviceKind.CUDA), cache_dir=str(tmp_path / "cache"))
    recalled = []
    recall = Calibrator.recall

    def told(self: Calibrator, *rest: Any) -> ProblemCalibration | None:
        recalled.append(recall(self, *rest))
        return recalled[-1]

    monkeypatch.setattr(Calibrator, "recall", told)
    with Zygote(preload=(*PRELOADED, *PRELOADED_CUDA), log_path=tmp_path / "zygote.log") as zygote:
        for _ in range(4):  # tests at the same time may disturb one of them
            with Referee(settings, zygote) as referee:
                assert referee.judge(task(problem(), tmp_path)).status is Status.passed
    assert any(known is not None and known.calm for known in recalled)
