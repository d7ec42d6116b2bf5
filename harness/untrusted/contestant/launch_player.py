"""Launch a recorded call in a process that runs no host code of the solution.

Runs the harness's code over a recording, which is a claim (`launch_recorder.py`). Kernels, copies and fills are
submitted in the recorded order. Work on other streams begins after the call's start and ends before its end. Memory of
the recorded process has the same contents here, at other addresses: each aligned word of the parameters that points
into it is moved. Pointers within memory are not. See guides/design/relaunching.md.
"""

from __future__ import annotations

import ctypes
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.devices.cuda import DeviceSpan
from harness.devices.layout import extent
from harness.protocol.messages import Region
from harness.protocol.tensor_tree import TreeSpec, flatten_any, unflatten
from harness.untrusted.contestant.cuda_structures import (
    MAX_DYNAMIC_SHARED,
    NON_PORTABLE_CLUSTER,
    DriverLibrary,
    LaunchAttribute,
    LaunchConfig,
)

_NON_BLOCKING = 1
_EVENT_WITHOUT_TIME = 2
_CLUSTER = 4
_FILLS = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}
_U64 = ctypes.c_uint64
_VOID = ctypes.c_void_p

PORTABLE_ATTRIBUTES = frozenset({0, 2, 4, 5, 6, 8, 9, 10, 11, 14})
"""Launch attributes without addresses or handles of the recorded process."""


@dataclass(frozen=True, slots=True)
class _Patch:
    """A word to set in each call: the address of an input, plus an offset."""

    place: int
    index: int
    offset: int


class LaunchPlayer:
    """A callable that makes a recorded call over other inputs.

    Args:
        plan: The recording's plan and images, as `Recording.plan` returns them.
        memory: Address of the contents of the recorded process's memory.
        arena: Address of the shared memory in this process.

    Raises:
        CudaError: The driver refuses a part of the recording.
        ValueError: The recording can't be launched here.
    """

    def __init__(self, plan: bytes, memory: int, arena: int) -> None:
        self._driver = DriverLibrary()
        size = int.from_bytes(plan[:8], "little")
        held: dict[str, Any] = json.loads(plan[8 : 8 + size])
        self._images: list[bytes] = []
        for nbytes in held["images"]:
            begin = 8 + size + sum(len(image) for image in self._images)
            self._images.append(plan[begin : begin + nbytes])
        self._modules: dict[int, ctypes.c_void_p] = {}
        self._moves: list[tuple[int, int, int]] = [
            (begin, nbytes, memory + offset) for begin, nbytes, offset in held["memory"]
        ]
        self._moves.append((*held["arena"], arena))
        self._inputs = [
            (address, max(1, _nbytes(place.shape, place.strides, getattr(torch, place.dtype))))
            for address, place in ((address, Region.from_json(region)) for address, region in held["inputs"])
        ]
        self._patches: list[_Patch] = []
        self._keep: list[object] = []
        self._kernels = [self._kernel(*kernel) for kernel in held["kernels"]]
        for kernel, name, nbytes, offset in held["variables"]:
            self._set_variable(self._kernels[kernel][1], name, nbytes, memory + offset)
        self._streams = [_VOID(torch.cuda.current_stream().cuda_stream)]
        for flags in held["streams"][1:]:
            stream = _VOID()
            self._driver.ask("cuStreamCreate", ctypes.byref(stream), flags)
            self._streams.append(stream)
        self._events: dict[object, ctypes.c_void_p] = {}
        self._tree = TreeSpec.from_json(held["tree"])
        self._leaves = held["leaves"]
        self.state = {name: tuple(self._output((), *place) for place in pair) for name, pair in held["state"].items()}
        """Present and initial tensor of the recorded process's state."""
        steps = joined(held["steps"], [bool(flags & _NON_BLOCKING) for flags in held["streams"]])
        self._steps: list[Callable[[], int]] = [self._step(step) for step in steps]
        torch.cuda.synchronize()

    def __call__(self, *arguments: object) -> object:
        """Submit the recorded work; return the outputs."""
        inputs = flatten_any(arguments)[0]
        places = [leaf.data_ptr() for leaf in inputs]
        for patch in self._patches:
            _U64.from_address(patch.place).value = places[patch.index] + patch.offset
        for step in self._steps:
            if (code := step()) != 0:
                self._driver.check("launching the recorded work", code)
        return unflatten(self._tree, [self._output(inputs, *leaf) for leaf in self._leaves])

    def _output(self, inputs: Sequence[Any], address: int, shape: list[int], strides: list[int], dtype: str) -> Any:
        kind = getattr(torch, dtype)
        nbytes = _nbytes(tuple(shape), tuple(strides), kind)
        if nbytes == 0:
            return torch.empty(shape, dtype=kind, device="cuda")
        found = self._input_at(address)
        place = self._moved(address) if found is None else inputs[found[0]].data_ptr() + found[1]
        flat = torch.as_tensor(DeviceSpan(place, nbytes, self), device="cuda", dtype=torch.uint8)
        return flat.view(kind).as_strided(shape, strides)

    def _kernel(self, symbol: str, attributes: list[list[int]], images: list[int]) -> tuple[Any, Any]:
        """Return function and module of a recorded kernel.

        Of several images with a kernel of this name and these attributes, the newest counts.
        """
        wanted = {held[0]: held[1] for held in attributes}
        for number in reversed(images):
            if number not in self._modules:
                module = _VOID()
                self._driver.ask("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(self._images[number]))
                self._modules[number] = module
            function, module = _VOID(), self._modules[number]
            name = ctypes.c_char_p(symbol.encode())
            if self._driver.code("cuModuleGetFunction", ctypes.byref(function), module, name) != 0:
                continue
            if self._driver.attributes(function, list(wanted)) == wanted:
                return function, module
        raise ValueError(f"no module has the kernel {symbol[:200]} as it was recorded")

    def _set_variable(self, module: Any, name: str, nbytes: int, source: int) -> None:
        address, size = _U64(), ctypes.c_size_t()
        found = (ctypes.byref(address), ctypes.byref(size), module, ctypes.c_char_p(name.encode()))
        if self._driver.code("cuModuleGetGlobal_v2", *found) == 0 and size.value == nbytes:
            self._driver.ask("cuMemcpyDtoD_v2", address, _U64(source), size)

    def _step(self, step: Sequence[Any]) -> Callable[[], int]:
        """Return a function that submits the step and returns the driver's code."""
        match step:
            case ["kernel", kernel, blocks, shared, stream, values, attributes]:
                return self._launch(self._kernels[kernel][0], [*blocks, shared], stream, values, attributes)
            case ["copy", target, source, nbytes, stream]:
                words = self._words([target, source])
                copy = self._driver.function("cuMemcpyDtoDAsync_v2", _U64, _U64, ctypes.c_size_t, _VOID)
                return lambda: copy(words[0], words[1], nbytes, self._streams[stream])
            case ["fill", target, value, width, count, stream]:
                words = self._words([target])
                number = {1: ctypes.c_ubyte, 2: ctypes.c_ushort, 4: ctypes.c_uint}[width]
                fill = self._driver.function(_FILLS[width], _U64, number, ctypes.c_size_t, _VOID)
                return lambda: fill(words[0], value, count, self._streams[stream])
            case ["record", event, stream]:
                record = self._driver.function("cuEventRecord", _VOID, _VOID)
                return lambda: record(self._event(event), self._streams[stream])
            case ["wait", event, stream]:
                wait = self._driver.function("cuStreamWaitEvent", _VOID, _VOID, ctypes.c_uint)
                return lambda: wait(self._streams[stream], self._event(event), 0)
        raise ValueError(f"unknown step {step[0]!r}")

    def _launch(
        self, function: Any, shape: list[int], stream: int, values: str, attributes: list[Any]
    ) -> Callable[[], int]:
        data = bytes.fromhex(values)
        words = (_U64 * (len(data) // 8 + 1))()
        ctypes.memmove(words, data, len(data))
        self._move(words, len(data) // 8)
        size = ctypes.c_size_t(len(data))
        extra = (_VOID * 5)(1, ctypes.addressof(words), 2, ctypes.addressof(size), 0)
        if bad := [each for each, _ in attributes if each not in PORTABLE_ATTRIBUTES]:
            raise ValueError(f"a kernel is launched with attribute {bad[0]}")
        listed = (LaunchAttribute * max(1, len(attributes)))()
        for place, (number, value) in zip(listed, attributes, strict=False):
            place.id = number
            place.value[:] = bytes.fromhex(value)
            if number == _CLUSTER:
                self._driver.ask("cuFuncSetAttribute", function, NON_PORTABLE_CLUSTER, 1)
        if shape[-1] > self._driver.attributes(function, [MAX_DYNAMIC_SHARED])[MAX_DYNAMIC_SHARED]:
            self._driver.ask("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, shape[-1])
        config = LaunchConfig(
            shape=(ctypes.c_uint32 * 7)(*shape),
            stream=self._streams[stream],
            attributes=ctypes.addressof(listed),
            attribute_count=len(attributes),
        )
        self._keep += [words, size, extra, listed, config]
        launch = self._driver.function("cuLaunchKernelEx", _VOID, _VOID, _VOID, _VOID)
        places = (ctypes.addressof(config), function, None, ctypes.addressof(extra) if data else None)
        return lambda: int(launch(*places))

    def _words(self, values: list[int]) -> Any:
        words = (_U64 * len(values))(*values)
        self._keep.append(words)
        self._move(words, len(values))
        return words

    def _move(self, words: Any, count: int) -> None:
        """Replace addresses of the recorded process; those in inputs are set in each call."""
        for number in range(count):
            found = self._input_at(words[number])
            if found is None:
                words[number] = self._moved(words[number])
            else:
                self._patches.append(_Patch(ctypes.addressof(words) + 8 * number, *found))

    def _input_at(self, word: int) -> tuple[int, int] | None:
        """Return number of the input that contains this address, and the offset."""
        for index, (begin, nbytes) in enumerate(self._inputs):
            if begin <= word < begin + nbytes:
                return index, word - begin
        return None

    def _moved(self, word: int) -> int:
        for begin, nbytes, target in self._moves:
            if begin <= word < begin + nbytes:
                return target + word - begin
        return word

    def _event(self, key: object) -> ctypes.c_void_p:
        if key not in self._events:
            self._events[key] = event = _VOID()
            self._driver.ask("cuEventCreate", ctypes.byref(event), _EVENT_WITHOUT_TIME)
        return self._events[key]


def joined(steps: Sequence[Sequence[Any]], free: Sequence[bool]) -> list[Sequence[Any]]:
    """Return the steps, with every stream bound to the call's own stream.

    A stream that waits for nothing of this call would begin beside the cache flush, so it waits for the call's start. A
    stream that nothing waits for would go on beside the call's end, so the call's stream waits for it.

    Args:
        steps: The recorded steps: kernel, copy, fill, record (event, stream), wait (event, stream).
        free: For each stream, whether the default stream does not wait for it by itself; number 0 is the call's own.
    """
    bound: list[Sequence[Any]] = []
    clocks: dict[int, dict[int, int]] = defaultdict(dict)
    events: dict[object, dict[int, int]] = {}
    clocks[0][0] = 0
    for step in steps:
        stream, clock = _stream_of(step), clocks[_stream_of(step)]
        if step[0] == "wait":
            if step[1] not in events:  # it was recorded before this call
                continue
            for other, count in events[step[1]].items():
                clock[other] = max(clock.get(other, 0), count)
        elif free[stream] and 0 not in clock:
            if "start" not in events:
                events["start"] = {0: 0}
                bound.insert(0, ["record", "start", 0])
            bound.append(["wait", "start", stream])
            clock[0] = 0
        if step[0] == "record":
            events[step[1]] = dict(clock)
        elif step[0] != "wait":
            clock[stream] = clock.get(stream, 0) + 1
        bound.append(step)
    for stream in sorted(clocks):
        count = clocks[stream].get(stream, 0)
        if stream and free[stream] and count > clocks[0].get(stream, 0):
            bound += [["record", ("end", stream), stream], ["wait", ("end", stream), 0]]
    return bound


def _stream_of(step: Sequence[Any]) -> int:
    return int(step[4] if step[0] in ("kernel", "copy") else step[5] if step[0] == "fill" else step[2])


def _nbytes(shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: torch.dtype) -> int:
    if strides is None:
        return int(torch.Size(shape).numel()) * dtype.itemsize
    return extent(shape, strides) * dtype.itemsize
