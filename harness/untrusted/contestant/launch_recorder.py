"""Record what one call submits to the GPU, so that another process can launch it.

Runs in a submission's process, so a recording is a claim. Whatever it contains, another process launches it over new
inputs and the referee verifies the outputs (`launch_player.py`): a recording that is right did the work. CUPTI reports
each module that the process loads, and each call of the driver during the recorded call. Host code between launches is
not recorded. See guides/design/relaunching.md.
"""

from __future__ import annotations

import bisect
import ctypes
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.protocol.messages import Region
from harness.protocol.tensor_tree import flatten_any
from harness.untrusted.contestant.cuda_structures import (
    KERNEL_IDENTITY,
    MEMORY_TYPE,
    Allocation,
    CooperativeLaunch,
    CopyBytes,
    DriverCall,
    DriverLibrary,
    EventRecord,
    ExtendedLaunch,
    FillBytes,
    KernelLaunch,
    LaunchAttribute,
    LaunchConfig,
    ModuleLoaded,
    ResourceEvent,
    StreamWait,
)
from harness.untrusted.contestant.cupti import load_cupti

MAX_IMAGE_BYTES = 2**30
"""Most bytes of modules to keep; the kernels of later modules can't be recorded."""

MAX_STEPS = 4096
MAX_PARAMETERS = 4096
"""Most steps of a call, and parameters of a kernel, to record."""

_DRIVER, _RESOURCE, _MODULE_LOADED, _ENTER = 1, 3, 6, 0
_ALLOCATES = ("cuMemAlloc", "cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemAllocManaged")
_HOST_MEMORY = 1
_SUBMITS = (
    "cuLaunch",
    "cuMemcpy",
    "cuMemset",
    "cuMemPrefetch",
    "cuGraphLaunch",
    "cuStreamAddCallback",
    "cuStreamBatchMemOp",
    "cuStreamBeginCapture",
    "cuStreamWaitValue",
    "cuStreamWriteValue",
    "cuSignalExternal",
    "cuWaitExternal",
)
"""Beginnings of the names of driver functions that change what a later launch does; most are recorded, and a call with
one of the others can't be launched elsewhere."""

_PER_THREAD = 2
_FILLS = {"cuMemsetD8": 1, "cuMemsetD16": 2, "cuMemsetD32": 4}
_COPIES = ("cuMemcpyDtoDAsync", "cuMemcpyAsync", "cuMemcpyDtoD", "cuMemcpy")

_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)


class NotRecorded(Exception):
    """The call can't be launched by another process; the message says why."""


@dataclass(frozen=True, slots=True)
class _RecordedKernel:
    """A kernel's identity, and offset and size in bytes of each parameter."""

    number: int
    symbol: str
    function: int
    attributes: dict[int, int]
    layout: tuple[tuple[int, int], ...]


class LaunchRecorder:
    """Keeps the images of modules from its start on, and records one call at a time.

    Args:
        driver: The driver's functions.

    Raises:
        TraceUnavailable: There is no CUPTI, or something else uses it.
    """

    def __init__(self, driver: DriverLibrary) -> None:
        self._driver = driver
        self._cupti = load_cupti()
        self._images: list[bytes] = []
        self._image_bytes = 0
        self._steps: list[list[Any]] | None = None
        self._scratch: list[tuple[int, int]] = []
        self._result: object = None
        self._kernels: dict[int, _RecordedKernel] = {}
        self._streams: list[int] = []
        self._lack = ""
        self._on_callback = _Callback(self._notice)
        self._subscriber = ctypes.c_void_p()
        self._cupti.ask("cuptiSubscribe", ctypes.byref(self._subscriber), self._on_callback, None)
        self._cupti.ask("cuptiEnableCallback", 1, self._subscriber, _RESOURCE, _MODULE_LOADED)

    def around(self, call: Callable[[], object]) -> object:
        """Run `call()` and record what it submits; return its result.

        The result stays alive until `recording`.
        """
        self._steps, self._kernels, self._scratch, self._lack = [], {}, [], ""
        self._streams = [torch.cuda.current_stream().cuda_stream]
        self._cupti.ask("cuptiEnableDomain", 1, self._subscriber, _DRIVER)
        try:
            self._result = call()
            return self._result
        finally:
            self._cupti.ask("cuptiEnableDomain", 0, self._subscriber, _DRIVER)

    def recording(
        self,
        arena: tuple[int, int],
        inputs: Sequence[tuple[int, Region]],
        state: Mapping[str, tuple[torch.Tensor, torch.Tensor]],
    ) -> Recording:
        """Return the recorded call.

        Args:
            arena: Address and bytes of the shared memory in this process.
            inputs: Address and place of each input of the call.
            state: Present and initial tensor of the state that a call restores before and copies out afterwards.

        Raises:
            NotRecorded: Another process can't launch it.
        """
        steps, self._steps = self._steps, None
        result, self._result = self._result, None
        if self._lack or steps is None:
            raise NotRecorded(self._lack or "no call was recorded")
        leaves, tree = flatten_any(result)
        memory = _Memory(self._driver, arena)
        for word in _addresses(steps):
            memory.include(word)
        for leaf in (*leaves, *(tensor for pair in state.values() for tensor in pair)):
            if leaf.device.type != "cuda" or leaf.layout is not torch.strided or leaf.is_conj() or leaf.is_neg():
                raise NotRecorded("an output or the state is no plain tensor of the GPU")
            memory.include(leaf.data_ptr())
        images = [
            held for held in self._images if any(_has_kernel(held, each.symbol) for each in self._kernels.values())
        ]
        variables = [
            (kernel.number, name, address, nbytes)
            for kernel in self._kernels.values()
            for name, address, nbytes in self._variables(kernel, images)
        ]
        plan = {
            "arena": arena,
            "inputs": [[address, region.to_json()] for address, region in inputs],
            "streams": [self._flags(stream) for stream in self._streams],
            "kernels": [
                [
                    kernel.symbol,
                    list(kernel.attributes.items()),
                    [number for number, held in enumerate(images) if _has_kernel(held, kernel.symbol)],
                ]
                for kernel in self._kernels.values()
            ],
            "steps": steps,
            "tree": tree.to_json(),
            "leaves": [_described(leaf) for leaf in leaves],
            "state": {name: [_described(tensor) for tensor in pair] for name, pair in state.items()},
        }
        # Memory that the call allocates may be freed by now; what it held before the call's launches does not matter.
        scratch = sorted((held for held in self._scratch if memory.lacks(held[0])), key=lambda held: -held[1])
        return Recording(self._driver, plan, images, memory.ranges, scratch, variables)

    def _notice(self, _data: Any, domain: int, _id: int, event: int) -> None:
        """Handle a callback of CUPTI, on any thread."""
        try:
            if domain == _RESOURCE:
                self._keep_image(event)
            elif domain == _DRIVER and self._steps is not None and not self._lack:
                call = DriverCall.from_address(event)
                if call.site == _ENTER:
                    self._note(call)
                elif _base_name(call) in _ALLOCATES:
                    held = Allocation.from_address(call.parameters)
                    self._scratch.append((ctypes.c_uint64.from_address(held.address).value, held.nbytes))
        except NotRecorded as lack:
            self._lack = str(lack)
        except Exception as error:
            self._lack = f"{type(error).__name__}: {error}"

    def _keep_image(self, event: int) -> None:
        module = ModuleLoaded.from_address(ResourceEvent.from_address(event).descriptor)
        if module.image and self._image_bytes + module.nbytes <= MAX_IMAGE_BYTES:
            self._images.append(ctypes.string_at(module.image, module.nbytes))
            self._image_bytes += module.nbytes

    def _note(self, call: DriverCall) -> None:
        """Add a call of the driver to the steps if it submits work."""
        assert self._steps is not None
        name, at, own = _base_name(call), call.parameters, call.name.endswith((b"_ptsz", b"_ptds"))
        if name == "cuLaunchKernel":
            held = KernelLaunch.from_address(at)
            stream = self._stream(held.stream, own)
            self._steps.append(self._launch(call, held, held.shape, stream, []))
        elif name == "cuLaunchKernelEx":
            extended = ExtendedLaunch.from_address(at)
            config = LaunchConfig.from_address(extended.config)
            attributes = (LaunchAttribute * config.attribute_count).from_address(config.attributes or at)
            listed = [[each.id, bytes(each.value).hex()] for each in attributes if each.id != 0]
            stream = self._stream(config.stream, own)
            self._steps.append(self._launch(call, extended, config.shape, stream, listed))
        elif name == "cuLaunchCooperativeKernel":
            together = CooperativeLaunch.from_address(at)
            listed = [[2, struct.pack("<i60x", 1).hex()]]
            stream = self._stream(together.stream, own)
            self._steps.append(self._launch(call, together, together.shape, stream, listed))
        elif name in _COPIES:
            copy = CopyBytes.from_address(at)
            stream = self._stream(copy.stream if name.endswith("Async") else 0, own)
            self._steps.append(["copy", copy.target, copy.source, copy.nbytes, stream])
        elif (width := _FILLS.get(name.removesuffix("Async"))) is not None:
            fill = FillBytes.from_address(at)
            stream = self._stream(fill.stream if name.endswith("Async") else 0, own)
            self._steps.append(["fill", fill.target, fill.value & (256**width - 1), width, fill.count, stream])
        elif name in ("cuEventRecord", "cuEventRecordWithFlags"):
            record = EventRecord.from_address(at)
            self._steps.append(["record", record.event, self._stream(record.stream, own)])
        elif name == "cuStreamWaitEvent":
            wait = StreamWait.from_address(at)
            self._steps.append(["wait", wait.event, self._stream(wait.stream, own)])
        elif name.startswith(_SUBMITS):
            raise NotRecorded(f"the call uses {name}")
        if len(self._steps) > MAX_STEPS:
            raise NotRecorded(f"the call submits more than {MAX_STEPS} pieces of work")

    def _launch(
        self, call: DriverCall, held: Any, shape: Sequence[int], stream: int, attributes: list[Any]
    ) -> list[Any]:
        kernel = self._kernel(held.function, call.symbol)
        nbytes = max((offset + size for offset, size in kernel.layout), default=0)
        values = bytearray(nbytes)
        if held.parameters:
            places = (ctypes.c_void_p * len(kernel.layout)).from_address(held.parameters)
            for place, (offset, size) in zip(places, kernel.layout, strict=True):
                values[offset : offset + size] = ctypes.string_at(place, size)
        elif getattr(held, "extra", None):
            values[:] = _packed(held.extra)
        *blocks, shared = shape
        return ["kernel", kernel.number, blocks, shared, stream, bytes(values).hex(), attributes]

    def _kernel(self, handle: int, symbol: bytes | None) -> _RecordedKernel:
        if handle not in self._kernels:
            function = ctypes.c_void_p(handle)
            module = ctypes.c_void_p()
            # The runtime passes a CUkernel where the driver takes a CUfunction.
            if self._driver.code("cuFuncGetModule", ctypes.byref(module), function) != 0:
                self._driver.ask("cuKernelGetFunction", ctypes.byref(function), ctypes.c_void_p(handle))
            layout, offset, size = [], ctypes.c_size_t(), ctypes.c_size_t()
            for number in range(MAX_PARAMETERS):
                place = (ctypes.c_size_t(number), ctypes.byref(offset), ctypes.byref(size))
                if self._driver.code("cuFuncGetParamInfo", function, *place) != 0:
                    break
                layout.append((offset.value, size.value))
            if symbol is None:
                raise NotRecorded("a kernel has no name")
            self._kernels[handle] = _RecordedKernel(
                number=len(self._kernels),
                symbol=symbol.decode(),
                function=function.value or 0,
                attributes=self._driver.attributes(function, KERNEL_IDENTITY),
                layout=tuple(layout),
            )
        return self._kernels[handle]

    def _variables(self, kernel: _RecordedKernel, images: Sequence[bytes]) -> Iterator[tuple[str, int, int]]:
        """Yield name, address and bytes of the variables of a kernel's module."""
        module, address, nbytes = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t()
        if self._driver.code("cuFuncGetModule", ctypes.byref(module), ctypes.c_void_p(kernel.function)) != 0:
            return
        names = {name for held in images if _has_kernel(held, kernel.symbol) for name in _objects(held)}
        for name in sorted(names):
            found = (ctypes.byref(address), ctypes.byref(nbytes), module, ctypes.c_char_p(name))
            if self._driver.code("cuModuleGetGlobal_v2", *found) == 0 and nbytes.value:
                yield name.decode(), address.value, nbytes.value

    def _stream(self, handle: int | None, own: bool) -> int:
        """Return the number of a stream; 0 is the call's own."""
        handle = handle or 0
        if handle <= _PER_THREAD:
            handle = _PER_THREAD if handle == _PER_THREAD or (own and handle == 0) else 0
        if handle not in self._streams:
            self._streams.append(handle)
        return self._streams.index(handle)

    def _flags(self, stream: int) -> int:
        flags = ctypes.c_uint()
        return 0 if self._driver.code("cuStreamGetFlags", ctypes.c_void_p(stream), ctypes.byref(flags)) else flags.value


class Recording:
    """A recorded call with the memory that it uses.

    Attributes:
        memory_bytes: Size of the memory's contents.
    """

    def __init__(
        self,
        driver: DriverLibrary,
        plan: dict[str, Any],
        images: Sequence[bytes],
        ranges: Sequence[tuple[int, int]],
        scratch: Sequence[tuple[int, int]],
        variables: Sequence[tuple[int, str, int, int]],
    ) -> None:
        self._driver = driver
        self._images = images
        self._sources: list[tuple[int, int, int]] = []
        self.memory_bytes = 0
        plan["memory"] = [[address, nbytes, self._place(address, nbytes)] for address, nbytes in ranges]
        plan["memory"] += [[address, nbytes, self._place(None, nbytes)] for address, nbytes in scratch]
        plan["variables"] = [
            [kernel, name, nbytes, self._place(address, nbytes)] for kernel, name, address, nbytes in variables
        ]
        plan["images"] = [len(image) for image in images]
        self._head = json.dumps(plan).encode()

    @property
    def plan_bytes(self) -> int:
        """Size of the plan, with the images of the modules."""
        return 8 + len(self._head) + sum(len(image) for image in self._images)

    def plan(self) -> bytes:
        return b"".join((len(self._head).to_bytes(8, "little"), self._head, *self._images))

    def copy_memory(self, target: int) -> None:
        """Copy the memory's contents to the address `target`."""
        for source, nbytes, offset in self._sources:
            sizes = (ctypes.c_uint64(target + offset), ctypes.c_uint64(source), ctypes.c_size_t(nbytes))
            self._driver.ask("cuMemcpyDtoD_v2", *sizes)
        torch.cuda.synchronize()

    def _place(self, address: int | None, nbytes: int) -> int:
        """Reserve a place for memory; copy it from `address` if that is not None."""
        offset = self.memory_bytes
        if address is not None:
            self._sources.append((address, nbytes, offset))
        self.memory_bytes += -(-nbytes // 512) * 512
        return offset


class _Memory:
    """The allocations, besides the arena, that addresses point into."""

    def __init__(self, driver: DriverLibrary, arena: tuple[int, int]) -> None:
        self._driver = driver
        self._arena = arena
        self.ranges: list[tuple[int, int]] = []
        self._none: set[int] = set()

    def lacks(self, word: int) -> bool:
        """Return whether neither the arena nor an allocation so far contains this address."""
        begin, nbytes = self._arena
        held = bisect.bisect_right(self.ranges, (word, 2**64)) - 1
        return not (begin <= word < begin + nbytes or (held >= 0 and word < sum(self.ranges[held])))

    def include(self, word: int) -> None:
        """Add the allocation that `word` points into, if it is a pointer."""
        if word in self._none or not self.lacks(word):
            return
        base, size, kind = ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_uint(0)
        asked = (ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(word))
        if self._driver.code("cuMemGetAddressRange_v2", *asked) != 0:
            self._none.add(word)
            return
        self._driver.code("cuPointerGetAttribute", ctypes.byref(kind), MEMORY_TYPE, ctypes.c_uint64(word))
        if kind.value == _HOST_MEMORY:
            raise NotRecorded("the call's GPU work uses host memory")
        bisect.insort(self.ranges, (base.value, size.value))


def _addresses(steps: Sequence[Sequence[Any]]) -> Iterator[int]:
    """Yield each word of the steps that may be an address of GPU memory."""
    seen: set[int] = set()
    for step in steps:
        words: Sequence[int] = ()
        if step[0] == "kernel":
            values = bytes.fromhex(step[5])
            words = struct.unpack_from(f"<{len(values) // 8}Q", values)
        elif step[0] in ("copy", "fill"):
            words = step[1:3] if step[0] == "copy" else step[1:2]
        for word in words:
            if 2**16 < word < 2**56 and word not in seen:
                seen.add(word)
                yield word


def _described(tensor: torch.Tensor) -> list[Any]:
    """Return address, shape, strides and dtype."""
    shape, strides = list(tensor.shape), list(tensor.stride())
    return [tensor.data_ptr(), shape, strides, str(tensor.dtype).removeprefix("torch.")]


def _base_name(call: DriverCall) -> str:
    """Return the name of a driver function without the suffixes of its variants."""
    return str(call.name.decode()).removesuffix("_ptsz").removesuffix("_ptds").removesuffix("_v2")


def _packed(extra: int) -> bytes:
    """Return the buffer of parameters in the `extra` options of a launch."""
    buffer, size, at = 0, 0, extra
    for _ in range(4):
        key, value = (ctypes.c_uint64 * 2).from_address(at)
        if key == 0:
            break
        buffer, size = (value, size) if key == 1 else (buffer, ctypes.c_size_t.from_address(value).value)
        at += 16
    return ctypes.string_at(buffer, size) if buffer else b""


def _has_kernel(image: bytes, symbol: str) -> bool:
    return b".text." + symbol.encode() + b"\0" in image


def _objects(image: bytes) -> Iterator[bytes]:
    """Yield the names of the variables in the symbol tables of an ELF image."""
    if image[:4] != b"\x7fELF":
        return
    (table,), (entry, count) = struct.unpack_from("<Q", image, 0x28), struct.unpack_from("<HH", image, 0x3A)
    sections = [struct.unpack_from("<IIQQQQII", image, table + entry * number) for number in range(count)]
    for _, kind, _, _, offset, nbytes, link, _ in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        for at in range(offset, offset + nbytes, 24):
            name, info, _, section, _, size = struct.unpack_from("<IBBHQQ", image, at)
            if info & 15 == 1 and section and size:  # STT_OBJECT
                begin = sections[link][4] + name
                yield image[begin : image.index(b"\0", begin)]
