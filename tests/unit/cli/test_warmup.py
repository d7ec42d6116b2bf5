"""The harness's own solution before the first evaluation: for real on the host device, once a start of the machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.api import Harness
from harness.cli import main, warmup
from harness.cli.warmup import Warmup, once, rehearse
from harness.core.choices import DeviceKind
from harness.core.config import RunConfig, resolve
from harness.core.environment import collect, machine
from harness.core.status import Status
from harness.runner.executors import ExecutorError
from harness.toolchain import default_root


def settings(device: DeviceKind) -> RunConfig:
    options = {"paths": [Path()], "device": device.value, "cache_dir": default_root(), "audit": "auto"}
    return resolve(machine=machine(collect()), run_id="r", options=options)


def test_it_passes_where_solutions_can_be_evaluated() -> None:
    made = rehearse(settings(DeviceKind.HOST))
    assert made.status is Status.passed, made.reason
    assert made.wall_s > 0.0
    assert not made.audited


@pytest.mark.gpu
def test_it_passes_on_a_gpu_with_an_audit() -> None:
    config = settings(DeviceKind.CUDA)
    made = rehearse(config)
    assert made.status is Status.passed, made.reason
    assert made.audited is (warmup._sanitizer(config) is not None)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """The configurations of rehearsals that were asked for; none of them is made, and each passes."""
    asked: list[RunConfig] = []

    def rehearse(config: RunConfig) -> Warmup:
        asked.append(config)
        return Warmup(status=Status.passed, reason="right", wall_s=1.5)

    monkeypatch.setattr(warmup, "rehearse", rehearse)
    monkeypatch.setattr(warmup, "cuda_unusable", lambda found: None)
    return asked


def test_one_that_passed_is_made_again_after_a_start_or_with_something_new(
    made: list[RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, found = replace(settings(DeviceKind.HOST), cache_dir=tmp_path), collect()
    assert once(config, found).status is Status.passed
    again = once(config, found)
    assert (again.status, again.reason) == (None, "it has already passed since the start of this machine")
    assert once(config, replace(found, torch="another")).status is Status.passed
    monkeypatch.setattr(warmup, "_machine_start", lambda: "later")
    assert once(config, found).status is Status.passed
    (tmp_path / warmup.STAMP).write_text("no JSON")
    assert once(config, found).status is Status.passed
    monkeypatch.setattr(warmup, "_machine_start", lambda: None)
    for _ in range(2):
        assert once(config, found).status is Status.passed, "nobody knows whether the machine was started since"
    assert len(made) == 6


def test_one_that_did_not_pass_is_told_and_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def no_device(*_: Any, **__: Any) -> None:
        nonlocal asked
        asked += 1
        raise ExecutorError("no referee can be had")

    monkeypatch.setattr(Harness, "evaluate", no_device)
    config = replace(settings(DeviceKind.HOST), cache_dir=tmp_path)
    for _ in range(2):
        held = once(config, collect())
        assert (held.status, held.reason) == (None, "ExecutorError: no referee can be had")
    assert asked == 2


class Toolchain:
    def warm_up(self) -> dict[str, Any]:
        return {"precompiled": []}


def warm_up(capsys: pytest.CaptureFixture[str], cache: Path, *options: str) -> str:
    assert main(["warmup", "--cache", str(cache), *options]) == 0
    return capsys.readouterr().out


def test_warmup_makes_it_on_a_gpu_and_says_how_it_came_out(
    made: list[RunConfig], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.cli.machine.open_toolchain", lambda *_, **__: Toolchain())
    assert "test solution" not in warm_up(capsys, tmp_path, "--device", "host")
    assert not made
    said = warm_up(capsys, tmp_path, "--device", "cuda")
    assert "ready for device cuda" in said
    assert "test solution: passed after 1.50 s, without an audit" in said
    assert [config.device for config in made] == [DeviceKind.CUDA]
    assert "not evaluated: it has already passed" in warm_up(capsys, tmp_path, "--device", "cuda")
    wrong = Warmup(status=Status.cuda_error, reason="no kernel image", wall_s=2.0, audited=True)
    monkeypatch.setattr(warmup, "once", lambda *_: wrong)
    said = warm_up(capsys, tmp_path, "--device", "cuda")
    assert "test solution: cuda_error (no kernel image; see harness doctor) after 2.00 s" in said
    assert "audit" not in said
    told = json.loads(warm_up(capsys, tmp_path, "--device", "cuda", "--json"))["rehearsal"]
    assert told == {"status": "cuda_error", "reason": "no kernel image", "wall_s": 2.0, "audited": True}


def test_warmup_for_gpus_on_a_machine_without_one_says_what_was_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.cli.machine.open_toolchain", lambda *_, **__: Toolchain())
    monkeypatch.setattr(warmup, "cuda_unusable", lambda found: "no GPU: on purpose")
    said = warm_up(capsys, tmp_path, "--device", "cuda")
    assert "test solution: not evaluated: no GPU: on purpose" in said
