"""What the referee asks of a contestant. Only `Burst` is parsed as a whole; the contestant may trust the referee.

Pure; both sides of the trust boundary use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.protocol.messages.fields import boolean, integer, integers, items, mapping, pair, sequence, text


class CallMode(StrEnum):
    """How one call of a burst is made."""

    WARM = "warm"
    """Untimed in the end: brings code and clocks up. Made and answered like every other call."""
    COLD = "cold"
    """Timed on the device's clock with a cold cache."""
    LATENCY = "latency"
    """Timed on the host's clock from an idle device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A tensor's place in the arena. `dtype` is torch's name without the prefix (`float32`)."""

    offset: int
    shape: tuple[int, ...]
    dtype: str

    def to_json(self) -> list[Any]:
        return [self.offset, list(self.shape), self.dtype]

    @classmethod
    def from_json(cls, value: Any) -> Region:
        offset, shape, dtype = sequence(value, 3)
        return cls(offset=integer(offset), shape=integers(shape), dtype=text(dtype))


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a burst: where its inputs lie, where its outputs and its state go, and the generators' seed
    (None: they are left alone, since the reference draws nothing).

    `late` are words of the arena (place, value) to write in the call's stream before its clock starts.
    """

    inputs: tuple[Region, ...]
    outputs: tuple[Region, ...]
    state: tuple[Region, ...]
    seed: int | None
    mode: CallMode
    late: tuple[tuple[int, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": [slot.to_json() for slot in self.inputs],
            "outputs": [slot.to_json() for slot in self.outputs],
            "state": [slot.to_json() for slot in self.state],
            "seed": self.seed,
            "mode": self.mode.value,
            "late": [list(pair) for pair in self.late],
        }

    @classmethod
    def from_json(cls, value: Any) -> Call:
        held = mapping(value)
        return cls(
            inputs=items(held, "inputs", Region.from_json),
            outputs=items(held, "outputs", Region.from_json),
            state=items(held, "state", Region.from_json),
            seed=None if held.get("seed") is None else integer(held.get("seed")),
            mode=CallMode(text(held.get("mode"))),
            late=items(held, "late", pair),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Open the device, which takes a while on a GPU, and say `Ready` when it is idle; done once, repeating is free.

    May come before anything is known of the problem. `host_runtime` is the folder of the host device's libraries.
    """

    device: str
    device_index: int
    checked: bool
    host_runtime: str | None

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "open",
            "device": self.device,
            "device_index": self.device_index,
            "checked": self.checked,
            "host_runtime": self.host_runtime,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """Map the arena whose descriptor comes along. A device that is not open yet is opened as `opening` says.

    On the host device a second descriptor is of memory in which findings and what runs are left
    (`harness.referee.contestants.crash_recorder`). With `own_allocations` calls get their inputs as copies, each an
    allocation of its own: for tools that watch bounds.
    """

    nbytes: int
    opening: Open
    own_allocations: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "attach",
            "nbytes": self.nbytes,
            "opening": self.opening.to_json(),
            "own_allocations": self.own_allocations,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeEmpty:
    """Make calls that do next to nothing and say what one takes: an `EmptyTimed`. Only before `Load`, while no code of
    the submission is there: afterwards it would be a claim.
    """

    def to_json(self) -> dict[str, Any]:
        return {"type": "time_empty"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Import the solution, construct `ModelNew`, and take over the reference's state where it differs.

    `init_tree` and `init_slots` describe the constructor's arguments; `state` maps names of the reference's state to
    slots holding their values; `modules` are the prebuilt extensions.
    """

    source: str
    filename: str
    modules: tuple[Mapping[str, Any], ...]
    init_tree: Mapping[str, Any]
    init_slots: tuple[Region, ...]
    state: Mapping[str, Region]
    seed: int

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "load",
            "source": self.source,
            "filename": self.filename,
            "modules": [dict(module) for module in self.modules],
            "init_tree": dict(self.init_tree),
            "init_slots": [slot.to_json() for slot in self.init_slots],
            "state": {name: slot.to_json() for name, slot in self.state.items()},
            "seed": self.seed,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Make these calls one after another and copy every output out as its window closes.

    `schedule` is the order in which the host device executes blocks and threads: 0 rising, 1 falling;
    2 and 4 are 0 with other values in shared memory that nobody wrote.
    `restore_state` asks that the model's state under `state_names` be as after loading before each call.
    `coerce_device` asks that outputs on another device be brought over inside the window, `contiguous` names outputs,
    by their numbers, whose elements are to be put in order there, if they are not.
    """

    calls: tuple[Call, ...]
    input_tree: Mapping[str, Any]
    state_names: tuple[str, ...]
    restore_state: bool
    coerce_device: bool
    schedule: int = 0
    contiguous: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "burst",
            "calls": [call.to_json() for call in self.calls],
            "input_tree": dict(self.input_tree),
            "state_names": list(self.state_names),
            "restore_state": self.restore_state,
            "coerce_device": self.coerce_device,
            "schedule": self.schedule,
            "contiguous": list(self.contiguous),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Burst:
        return cls(
            calls=items(value, "calls", Call.from_json),
            input_tree=mapping(value.get("input_tree")),
            state_names=items(value, "state_names", text),
            restore_state=boolean(value.get("restore_state")),
            coerce_device=boolean(value.get("coerce_device")),
            schedule=integer(value.get("schedule")),
            contiguous=items(value, "contiguous", integer),
        )


class LaunchMode(StrEnum):
    """How calls are made without a pause between them."""

    LAUNCHED = "launched"
    """One by one, each launched as the one before was submitted."""
    QUEUED = "queued"
    """All submitted before the first begins."""
    GRAPH = "graph"
    """As one CUDA graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Make ready for the calls of `burst`, which begin all at once: with `Go`, or, queued, as the gate opens, whose
    descriptor comes along, for its use `number`.

    The inputs change in between. The calls' `late` words and `mode` do not count.
    """

    burst: Burst
    launch_mode: LaunchMode
    number: int = 0

    def to_json(self) -> dict[str, Any]:
        return {**self.burst.to_json(), "type": "prepare", "manner": self.launch_mode.value, "number": self.number}


@dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    """Make the prepared calls, one after another without a pause. The reply is short: the referee's clock runs."""

    def to_json(self) -> dict[str, Any]:
        return {"type": "go"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Collect:
    """Say what the calls that were prepared have returned: a `BurstDone`. Queued ones are over by then."""

    def to_json(self) -> dict[str, Any]:
        return {"type": "collect"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Let go of the solution, the arena and what is cached for them, and say `Ready`: another may be loaded then.

    For the harness's own code, in a process that no submission ever entered.
    """

    def to_json(self) -> dict[str, Any]:
        return {"type": "release"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeCensus:
    """Make the one call of `burst` and say which kernels it ran: a `CensusTaken`.

    With `marked` nothing is traced: the call stands between cudaProfilerStart and Stop, for a tool around the process.
    """

    burst: Burst
    marked: bool = False

    def to_json(self) -> dict[str, Any]:
        return {**self.burst.to_json(), "type": "take_census", "marked": self.marked}


@dataclass(frozen=True, slots=True, kw_only=True)
class Locate:
    """Say which lines of sources these `sites` were compiled from, each a module's path and an offset in it: a
    `Located`. Asked of a `symboliser`, never of a contestant.
    """

    sites: tuple[tuple[str, int], ...]

    def to_json(self) -> dict[str, Any]:
        return {"type": "locate", "sites": [list(site) for site in self.sites]}


Request = Open | Attach | TimeEmpty | Load | Burst | Prepare | Go | Collect | Release | TakeCensus
