"""Compile and measure baselines in one process.

Command: `python -m harness.referee.baselines.measuring_process FD`.

Trusted side: it executes problems, never a submission. It exchanges frames of `protocol.channel` with its owner: first
its device, then one request after another. It ends when its owner ends, together with inductor's workers.

Kept entries are used only after one of them agrees with eager measured now. If it does not agree, the machine has
changed: every kept entry is then checked, problem by problem, and measured again if it drifted.
"""

from __future__ import annotations

import gc
import os
import random
import secrets
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from harness.core.choices import Baseline, DeviceKind
from harness.core.json_value import from_json
from harness.core.problem import Problem, Workload
from harness.core.status import one_line
from harness.core.subprocesses import end_with
from harness.devices import measured_peaks, nvrtc
from harness.devices.device import Device, DeviceError
from harness.devices.nvrtc import KeptImages
from harness.devices.out_of_memory import advice, held_elsewhere_bytes, is_shortage, opened
from harness.protocol.channel import Channel, ChannelClosed
from harness.referee.baselines.compiled_reference import Turnstile
from harness.referee.baselines.entry import BaselineEntry
from harness.referee.baselines.keeper import spot_check
from harness.referee.baselines.measuring import eager_now_s, measure, sets_for
from harness.referee.baselines.store import BaselineStore, key_for
from harness.referee.problem.loader import ProblemError
from harness.referee.problem.shapes import sketch
from harness.referee.problem.workspace import Workspace

TRUTH_SETS = 4
"""Memory reserved for the truth, in sets: inputs, outputs and intermediate values in float64."""

ROOM_TIMEOUT_S = 90.0


def main(fd: int) -> None:
    """Serve requests until the owner closes the connection."""
    sock = socket.socket(fileno=fd)
    end_with(sock, lambda: os.killpg(0, signal.SIGKILL))  # this process leads its own group (see `BaselineProcess`)
    channel = Channel(sock)
    start = channel.receive().message
    try:
        device = opened(DeviceKind(start["device"]), start["device_index"])
    except DeviceError as error:
        channel.send({"type": "fault", "reason": str(error)})
        return
    turnstile = Turnstile(None if start["turnstile"] is None else Path(start["turnstile"]))
    cache_dir = Path(start["cache_dir"])
    nvrtc.keep_images(KeptImages(cache_dir))
    with turnstile:
        found = measured_peaks.ensure(device, cache_dir)
    channel.send({"type": "ready", "peaks": None if found is None else found.to_json()})
    trust = _Trust()
    while True:
        try:
            request = channel.receive().message
        except ChannelClosed:
            return
        answer = _answer(request, device, turnstile, BaselineStore(cache_dir), trust)
        if answer.get("no_memory"):
            answer["reason"] += f": {advice(device, held_elsewhere_bytes(device))}"
        channel.send(answer)


@dataclass(slots=True)
class _Trust:
    """Whether kept entries agreed with this machine at the last check of this process.

    `own` are the digests of entries that this process measured.
    """

    holds: bool = False
    own: set[str] = field(default_factory=set)


def _answer(
    request: Mapping[str, Any], device: Device, turnstile: Turnstile, store: BaselineStore, trust: _Trust
) -> dict[str, Any]:
    problem, workload = from_json(request["problem"], Problem), from_json(request["workload"], Workload)
    asked = [Baseline(name) for name in request["baselines"]]
    keys = {baseline: key_for(baseline, problem, workload, device) for baseline in asked}
    held = {} if request["refresh"] else {b: found for b, key in keys.items() if (found := store.get(key)) is not None}
    doubted = not trust.holds and any(e.eager_s and keys[b].digest() not in trust.own for b, e in held.items())
    if not doubted and all(baseline in held for baseline in asked):
        return _told([held[baseline] for baseline in asked])
    # Seeds are secret: entries outlive the process, and a problem's inputs must not repeat.
    secret = random.Random(secrets.randbits(256))
    workspace: Workspace | None = None
    try:
        workspace = _workspace(problem, workload, device, turnstile, secret)
        if doubted:
            with turnstile:
                now_s = eager_now_s(workspace, secret)
            sound = {b: found for b, found in held.items() if not spot_check(found, now_s, device.kind)["drifted"]}
            trust.holds, held = len(sound) == len(held), sound
        if wanted := [baseline for baseline in asked if baseline not in held]:
            for entry in measure(workspace, wanted, secret=secret, budget_s=request["budget_s"], turnstile=turnstile):
                held[entry.baseline] = entry
                trust.own.add(keys[entry.baseline].digest())
                with suppress(OSError):  # without the cache the next run measures again
                    store.put(keys[entry.baseline], entry)
        return _told([held[baseline] for baseline in asked])
    except Exception as error:
        if is_shortage(error):
            return {"type": "fault", "reason": f"problem {problem.id}: not enough memory", "no_memory": True}
        if isinstance(error, ProblemError):
            return {"type": "fault", "reason": one_line(f"problem {problem.id}: {error}")}
        traceback.print_exc()
        return {"type": "fault", "reason": one_line(f"{type(error).__name__}: {error}")}
    finally:
        with turnstile:
            if workspace is not None:
                workspace.close()
            del workspace
            gc.collect()
            if device.torch_device.type == "cuda":
                torch.cuda.empty_cache()


def _set_bytes(problem: Problem, workload: Workload) -> int | None:
    """Bytes of one set of inputs and outputs; None if unknown without data."""
    try:
        made = sketch(problem, workload)
    except ProblemError:
        return None
    return made.input_bytes + made.output_bytes


def _workspace(
    problem: Problem, workload: Workload, device: Device, turnstile: Turnstile, secret: random.Random
) -> Workspace:
    """Prepare the problem as soon as there is memory for it.

    It needs room for its sets and for the truth in float64.

    Raises `OutOfMemoryError` if memory stays short for `ROOM_TIMEOUT_S`. Otherwise the CPU would compute the truth, for
    minutes, while the other processes wait.
    """
    set_bytes = _set_bytes(problem, workload)
    sets = sets_for(set_bytes)
    shared = turnstile.shared and device.torch_device.type == "cuda"
    needed = (sets + TRUTH_SETS) * (set_bytes or 0) if shared else 0
    deadline = time.monotonic() + ROOM_TIMEOUT_S
    while True:
        with turnstile:
            if not needed or torch.cuda.mem_get_info(device.torch_device)[0] >= needed:
                workspace = Workspace(problem, workload, device, sets_wanted=sets, secret=secret)
                for index in range(len(workspace.sets)):
                    workspace.draw(index)
                return workspace
        if time.monotonic() > deadline:
            raise torch.OutOfMemoryError(f"{needed} bytes are needed, but other problems use the GPU's memory")
        time.sleep(0.5)


def _told(entries: Sequence[BaselineEntry]) -> dict[str, Any]:
    return {"type": "measured", "entries": [entry.to_json() for entry in entries]}


if __name__ == "__main__":
    main(int(sys.argv[1]))
