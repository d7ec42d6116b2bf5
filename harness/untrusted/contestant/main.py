"""The contestant: imports and runs one solution in a sandboxed process.

Runs in a submission's process; started by name and never imported by a trusted module. It holds only the inputs of the
requested calls and the output buffers. Every answer is a claim, because the solution may rewrite any of this code.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from harness.core.status import one_line
from harness.devices.back_to_back import BackToBack, QueuedStep
from harness.devices.device import Arena, CallTime, Device
from harness.devices.empty_kernel import empty_calls
from harness.devices.layout import copied
from harness.devices.stream_gate import StreamGate
from harness.protocol.channel import Channel, ChannelClosed, FrameTooLarge
from harness.protocol.fields import MAX_REPORTS, MAX_TEXT, MAX_TRACE
from harness.protocol.gradients import between_passes, forward_and_backward
from harness.protocol.kernel_rows import MAX_NAME, CensusTaken
from harness.protocol.messages import (
    Broken,
    Burst,
    BurstDone,
    Call,
    CallClaim,
    CallMode,
    EmptyTimed,
    Gradients,
    Keep,
    LaunchMode,
    Loaded,
    Ready,
    Recorded,
    Region,
    Stage,
)
from harness.protocol.module_state import misplaced, refuse_lazy
from harness.protocol.reply_limits import ReplyLimits
from harness.protocol.tensor_tree import TreeSpec, unflatten
from harness.protocol.withheld_words import WORD_BYTES, writers
from harness.untrusted.contestant.device import OpenedDevice, open_ahead, open_now
from harness.untrusted.contestant.model_state import HeldState
from harness.untrusted.contestant.outputs import OutputSnapshot, reshaped

MODULE_NAME = "solution"

KEEPING_BYTES = 2 * 2**30
"""GPU memory of a process, cache flush included, up to which the latest result stays alive."""


class NoModelNew(Exception):
    """The solution's module has no class ModelNew."""


class _Broke(Exception):
    """The solution raised at `stage`; `__cause__` is its exception."""

    def __init__(self, stage: Stage, call: int | None = None) -> None:
        super().__init__(stage.value)
        self.stage = stage
        self.call = call


def main(channel: Channel, fds: tuple[int, ...]) -> None:
    """Serve the referee's requests until it closes the channel."""
    contestant, limits = Contestant(), ReplyLimits()
    while True:
        try:
            received = channel.receive()
        except ChannelClosed:
            return
        limit = limits.of(received.message)
        try:
            reply = contestant.handle(received.message, received.fds)
        except _Broke as broke:
            cause = broke.__cause__
            assert cause is not None
            reply = contestant.describe(broke, cause).to_json()
        try:
            channel.send(reply, limit=limit)
        except FrameTooLarge as refusal:
            channel.send(shorter(reply, str(refusal)))


def shorter(reply: Mapping[str, Any], refusal: str) -> dict[str, Any]:
    """Return a reply in place of one that the referee would not accept."""
    if reply["type"] == Broken.TYPE:  # of texts only commas and brackets can be too many
        texts = {"message": reply["message"][:1000], "trace": reply["trace"][-1000:]}
        return {**reply, **texts, "reports": reply["reports"][:16]}
    stage = Stage.CONSTRUCT if reply["type"] == Loaded.TYPE else Stage.CALL
    message = f"the results are too much to describe: {refusal}; return as many tensors as the reference does"
    return Broken(stage=stage, kind="TooManyResults", message=message, trace="").to_json()


class Contestant:
    """State of one solution: device, arena, module, model."""

    def __init__(self) -> None:
        self._opened: OpenedDevice | None = None
        self._device: Device | None = None
        self._arena: Arena | None = None
        self._module: Any = None
        self._model: Any = None
        self._notes: list[str] = []
        self._state = HeldState()
        self._shim: Any = None
        self._previous: object = None
        self._own_allocations = False
        self._prepared: BackToBack | None = None
        self._snapshots: list[OutputSnapshot] = []
        self._gate: StreamGate | None = None
        self._took = CallTime(device_s=0.0, window_s=0.0)
        self._recording: Any = None
        self._gradients: Gradients | None = None
        self._calls = 0
        self._held_bytes: int | None = None

    def handle(self, message: Mapping[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        match message["type"]:
            case "open":
                return self._open(message).to_json()
            case "attach":
                return self._attach(message, *fds)
            case "time_empty":
                return self._time_empty().to_json()
            case "load":
                return self._load(message).to_json()
            case "take_state":
                return self._take_state().to_json()
            case "burst":
                return self._burst(Burst.from_json(message)).to_json()
            case "take_census":
                return self._census(Burst.from_json(message), marked=bool(message["marked"])).to_json()
            case "record_launches":
                return self._record_launches(Burst.from_json(message)).to_json()
            case "export_launches":
                return self._export_launches(message, *fds).to_json()
            case "load_launches":
                return self._load_launches(message, *fds).to_json()
            case "prepare":
                return self._prepare(message, fds).to_json()
            case "go":
                return self._go().to_json()
            case "collect":
                return self._collect().to_json()
            case "release":
                return self._release().to_json()
            case other:
                raise ValueError(f"unknown request {other!r}")

    def describe(self, broke: _Broke, cause: BaseException) -> Broken:
        """Describe the solution's exception, with the findings so far."""
        text = "".join(traceback.format_exception(cause))
        sys.stderr.write(text)
        why = misplaced(self._model, cause) if broke.stage is Stage.CALL else None
        return Broken(
            stage=broke.stage,
            kind=type(cause).__name__,
            message=(str(cause) if why is None else f"{one_line(str(cause), limit=200)}; {why}")[:MAX_TRACE],
            trace=text[-MAX_TRACE:],
            call=broke.call,
            reports=self._reports(),
        )

    def _open(self, message: Mapping[str, Any]) -> Ready:
        try:
            if self._opened is None:
                self._opened = open_ahead(message)
            self._opened.device.synchronize()  # raises if the device is not usable any more
        except Exception as error:
            raise _Broke(Stage.ATTACH) from error
        return Ready()

    def _attach(self, message: Mapping[str, Any], fd: int, recorder_fd: int | None = None) -> dict[str, Any]:
        # After the solution was loaded, it is the cause of a failure as well as anything else.
        stage = Stage.ATTACH if self._module is None else Stage.CALL
        try:
            if self._arena is not None:  # of other sizes
                self._previous, self._snapshots, self._prepared = None, [], None
                self._arena.close()
                self._arena = None
            opened = self._opened or open_now(message["opening"])
            self._opened, self._device, self._shim = opened, opened.device, opened.shim
            self._arena = self._device.attach(fd, message["nbytes"])
            self._own_allocations = bool(message["own_allocations"])
            if self._shim is not None and recorder_fd is not None:
                self._shim.record_to(recorder_fd)
        except Exception as error:
            raise _Broke(stage) from error
        return Loaded(unmatched=(), copied=(), notes=()).to_json()

    def _time_empty(self) -> EmptyTimed:
        assert self._device is not None
        try:
            return empty_calls(self._device)
        except Exception as error:
            raise _Broke(Stage.ATTACH) from error

    def _tensor(self, slot: Region) -> torch.Tensor:
        assert self._arena is not None
        tensor = self._arena.tensor(slot.offset, slot.shape, getattr(torch, slot.dtype), slot.strides)
        if self._shim is not None:
            return self._shim.mark_cuda(tensor)  # type: ignore[no-any-return]
        return tensor

    def _load(self, message: Mapping[str, Any]) -> Loaded:
        assert self._device is not None
        assert self._opened is not None
        keep = Keep(message["keep"])
        if keep is Keep.NOTHING:
            self._import(message)
        try:
            if keep is Keep.MODEL:
                self._state.restore()
            else:
                self._construct(message)
            if (wanted := message.get("gradients")) is not None:
                self._gradients = Gradients.from_json(wanted)
            state = {name: self._tensor(Region.from_json(slot)) for name, slot in message["state"].items()}
            differing, unmatched = self._state.match(state, message["drawn"])
            self._device.synchronize()
        except BaseException as error:
            raise _Broke(Stage.CONSTRUCT) from error
        return Loaded(copied=(), unmatched=tuple(unmatched), notes=tuple(self._notes), differing=tuple(differing))

    def _import(self, message: Mapping[str, Any]) -> None:
        assert self._opened is not None
        from harness.untrusted.contestant import load_inline

        build_here = None
        if self._opened.host_runtime is not None:
            build_here = load_inline.host_builder(self._opened.host_runtime, checked=self._opened.checked)
        self._notes = load_inline.install(message["modules"], build_here=build_here)
        try:
            self._module = import_solution(message["source"], message["filename"])
        except BaseException as error:
            raise _Broke(Stage.IMPORT) from error

    def _construct(self, message: Mapping[str, Any]) -> None:
        assert self._device is not None
        if not isinstance(getattr(self._module, "ModelNew", None), type):
            raise NoModelNew("the file defines no class ModelNew")
        init_leaves = [self._tensor(Region.from_json(slot)).clone() for slot in message["init_slots"]]
        init_args = unflatten(TreeSpec.from_json(message["init_tree"]), init_leaves)
        self._model, self._state = None, HeldState()  # before the next one, which may need the memory
        self._device.reseed(message["seed"])
        model = self._module.ModelNew(*init_args)
        if isinstance(model, torch.nn.Module):
            refuse_lazy(model)
            dtype = None if message["dtype"] is None else getattr(torch, message["dtype"])
            model = model.to("cuda" if self._shim is not None else self._device.torch_device, dtype=dtype)
        self._model = model
        self._state = HeldState(model)

    def _take_state(self) -> Loaded:
        assert self._device is not None
        try:
            copied = self._state.take_over()
            self._device.synchronize()
        except BaseException as error:
            raise _Broke(Stage.CONSTRUCT) from error
        return Loaded(copied=tuple(copied), unmatched=(), notes=())

    def _burst(self, burst: Burst) -> BurstDone:
        assert self._device is not None
        if self._shim is not None:
            self._shim.set_schedule(burst.schedule)
        tree = TreeSpec.from_json(burst.input_tree)
        claims = []
        self._device.start_peak()
        late = self._late_words(burst.calls)
        for index, (call, before) in enumerate(zip(burst.calls, late, strict=True)):
            try:
                claims.append(self._call(call, tree, burst, before))
            except BaseException as error:
                raise _Broke(Stage.CALL, index) from error
        if self._shim is not None:
            self._shim.note_calls(len(claims))
        return BurstDone(
            claims=tuple(claims),
            reports=self._reports(),
            peak_bytes=self._device.peak_bytes(),
            held_bytes=self._held_bytes,
        )

    def _prepare(self, message: Mapping[str, Any], fds: Sequence[int]) -> Ready:
        """Prepare a back-to-back burst; refuse a launch mode that does not work."""
        assert self._device is not None
        burst, launch_mode = Burst.from_json(message), LaunchMode(message["manner"])
        tree = TreeSpec.from_json(burst.input_tree)
        self._snapshots = []
        self._prepared = None
        steps = [self._step(call, tree, burst) for call in burst.calls]
        self._device.synchronize()
        try:
            if fds and self._gate is None:
                self._gate = self._device.attach_gate(fds[0])
            elif fds:
                os.close(fds[0])
            self._prepared = BackToBack(self._device, steps, launch_mode, self._gate, int(message["number"]))
        except Exception as error:
            return Ready(refused=f"{type(error).__name__}: {error}"[:MAX_TEXT])
        return Ready()

    def _step(self, call: Call, tree: TreeSpec, burst: Burst) -> QueuedStep:
        snapshot = OutputSnapshot([self._tensor(slot) for slot in call.outputs], self._shim)
        state_slots = [self._tensor(slot) for slot in call.state]
        inputs = [self._tensor(slot) for slot in call.inputs]
        arguments = unflatten(tree, inputs)
        snapshot.inputs = list(zip(inputs, call.inputs, strict=True))
        self._snapshots.append(snapshot)

        def before() -> None:
            if burst.restore_state:
                self._state.put_back(burst.state_names)
            if call.seed is not None and self._device is not None:
                self._device.reseed(call.seed)

        model = self._both_passes()

        def forward() -> object:
            result = model(*arguments)
            return snapshot.in_order(snapshot.coerce(result) if burst.coerce_device else result, burst.contiguous)

        def after(result: object) -> None:
            snapshot.take(result)
            snapshot.missing = self._state.copy_to(burst.state_names, state_slots)
            self._keep(snapshot.result)
            snapshot.result = None

        return QueuedStep(before=before, forward=forward, after=after)

    def _go(self) -> Ready:
        if self._prepared is None:
            raise ValueError("nothing is prepared")
        try:
            self._took = self._prepared.run()
        except BaseException as error:
            raise _Broke(Stage.CALL) from error
        self._prepared = None
        return Ready()

    def _collect(self) -> BurstDone:
        """Return the outputs; each call claims an equal share of the burst's time."""
        if self._prepared is not None:
            self._go()
        count = len(self._snapshots)
        return BurstDone(
            claims=tuple(
                CallClaim(
                    device_s=self._took.device_s / count,
                    window_s=self._took.window_s / count,
                    tree=snapshot.tree.to_json(),
                    leaves=snapshot.leaves,
                    state_missing=tuple(snapshot.missing),
                    reshaped=reshaped(snapshot.inputs),
                )
                for snapshot in self._snapshots
            ),
            reports=self._reports(),
        )

    def _release(self) -> Ready:
        """Remove the solution's state and keep the device open."""
        self._module = self._model = self._previous = self._prepared = None
        self._snapshots, self._state, self._notes = [], HeldState(), []
        self._gradients, self._calls, self._held_bytes = None, 0, None
        sys.modules.pop(MODULE_NAME, None)
        if self._arena is not None:
            self._arena.close()
            self._arena = None
        if self._shim is None:
            torch.cuda.empty_cache()
        return Ready()

    def _census(self, burst: Burst, *, marked: bool) -> CensusTaken:
        """Run one more call with its GPU work recorded, or marked for a profiler.

        The host device counts launches anyway, so there the latest call counts.
        """
        from harness.untrusted.contestant import cupti

        if self._shim is not None:
            return CensusTaken(rows=cupti.counted(self._shim.launches_of_call()), complete=True)
        try:
            watch = cupti.Marks() if marked else cupti.Trace()
            (call,), (late,) = burst.calls, self._late_words(burst.calls)
            self._call(call, TreeSpec.from_json(burst.input_tree), burst, late, watch.around)
            return CensusTaken(rows=watch.rows(), complete=watch.complete)
        except cupti.TraceUnavailable as lacking:
            return CensusTaken(rows=(), complete=False, lack=str(lacking)[:MAX_NAME])
        except BaseException as error:
            raise _Broke(Stage.CALL, 0) from error

    def _record_launches(self, burst: Burst) -> Recorded:
        """Run one call and record what it submits."""
        assert self._device is not None
        assert self._arena is not None
        assert self._opened is not None
        from harness.untrusted.contestant.launch_recorder import NotRecorded

        recorder = self._opened.recorder
        try:
            if recorder is None:
                raise NotRecorded("CUPTI is missing, or something else uses it")
            (call,), (late,) = burst.calls, self._late_words(burst.calls)
            self._call(call, TreeSpec.from_json(burst.input_tree), burst, late, recorder.around)
            arena = (self._arena.tensor(0, (1,), torch.uint8).data_ptr(), self._arena.nbytes)
            inputs = [(self._tensor(slot).data_ptr(), slot) for slot in call.inputs]
            state = self._state.present_and_initial(burst.state_names)
            if len(state) < len(burst.state_names):
                raise NotRecorded("the model lacks some of the reference's state")
            self._recording = recorder.recording(arena, inputs, state)
        except NotRecorded as lack:
            return Recorded(memory_bytes=0, plan_bytes=0, lack=str(lack)[:MAX_NAME])
        except BaseException as error:
            raise _Broke(Stage.CALL, 0) from error
        return Recorded(memory_bytes=self._recording.memory_bytes, plan_bytes=self._recording.plan_bytes)

    def _export_launches(self, message: Mapping[str, Any], memory_fd: int, plan_fd: int) -> Ready:
        assert self._device is not None
        try:
            memory = self._device.attach(memory_fd, message["memory_bytes"])
            self._recording.copy_memory(memory.tensor(0, (1,), torch.uint8).data_ptr())
            memory.close()
            with os.fdopen(plan_fd, "r+b") as plan:
                plan.write(self._recording.plan())
        except BaseException as error:
            raise _Broke(Stage.CALL, 0) from error
        self._recording = None
        return Ready()

    def _load_launches(self, message: Mapping[str, Any], memory_fd: int, plan_fd: int) -> Ready:
        assert self._device is not None
        assert self._arena is not None
        from harness.untrusted.contestant.launch_player import LaunchPlayer

        try:
            memory = self._device.attach(memory_fd, message["memory_bytes"])
            with os.fdopen(plan_fd, "rb") as held:
                plan = held.read(message["plan_bytes"])
            places = [arena.tensor(0, (1,), torch.uint8).data_ptr() for arena in (memory, self._arena)]
            self._model = LaunchPlayer(plan, *places)
            self._state = HeldState.of(self._model.state)
        except BaseException as error:
            raise _Broke(Stage.IMPORT) from error
        return Ready()

    def _call(
        self,
        call: Call,
        tree: TreeSpec,
        burst: Burst,
        before: Callable[[], None] | None,
        around: Callable[[Callable[[], object]], object] | None = None,
    ) -> CallClaim:
        assert self._device is not None
        outputs = [self._tensor(slot) for slot in call.outputs]
        state_slots = [self._tensor(slot) for slot in call.state]
        inputs = [self._tensor(slot) for slot in call.inputs]
        if self._own_allocations:
            inputs = [copied(leaf) for leaf in inputs]
        arguments = unflatten(tree, inputs)
        if burst.restore_state:
            self._state.put_back(burst.state_names)
        if call.seed is not None:
            self._device.reseed(call.seed)
        snapshot = OutputSnapshot(outputs, self._shim)
        if self._shim is not None:
            self._shim.begin_call()

        model = self._both_passes()
        # Asking takes time: only in the first calls, which are not timed. The first one may allocate for later ones.
        asks = self._gradients is not None and self._calls < 2
        self._calls += 1
        before_bytes = torch.cuda.memory_allocated() if asks else 0

        def note() -> None:
            assert self._device is not None
            if asks:
                self._held_bytes = max(0, torch.cuda.memory_allocated() - before_bytes)
            self._device.mark()

        def forward() -> object:
            result = model(*arguments)
            return snapshot.in_order(snapshot.coerce(result) if burst.coerce_device else result, burst.contiguous)

        def observed() -> object:
            return forward() if around is None else around(forward)

        timer = self._device.time_latency if call.mode is CallMode.LATENCY else self._device.time_cold
        with torch.no_grad(), between_passes(note):
            times: CallTime = timer(observed, snapshot.take, before)
            missing = self._state.copy_to(burst.state_names, state_slots)
            self._device.synchronize()
        self._keep(snapshot.result)
        return CallClaim(
            device_s=times.device_s,
            window_s=times.window_s,
            tree=snapshot.tree.to_json(),
            leaves=snapshot.leaves,
            state_missing=tuple(missing),
            reshaped=reshaped(list(zip(inputs, call.inputs, strict=True))),
            forward_s=times.forward_s,
        )

    def _both_passes(self) -> Callable[..., object]:
        """Return the model's call, followed by its backward if the problem asks for that."""
        if self._gradients is None:
            return self._model  # type: ignore[no-any-return]
        parameters = self._state.parameters(self._gradients.parameters)
        model, gradients = self._model, self._gradients
        return lambda *arguments: forward_and_backward(model, arguments, gradients, parameters)

    def _keep(self, result: object) -> None:
        """Keep a call's result alive until the next call has returned.

        Otherwise the next result could get its address. Not if the process holds much memory: a result in a large block
        that was freed would keep the next call from using the block again.
        """
        assert self._device is not None
        device = self._device.torch_device
        held = torch.cuda.memory_reserved(device) if device.type == "cuda" else 0
        self._previous = result if held <= KEEPING_BYTES else None

    def _late_words(self, calls: Sequence[Call]) -> list[Callable[[], None] | None]:
        """Return for each call the function that writes its withheld words as it begins."""
        assert self._arena is not None
        words = self._arena.tensor(0, (self._arena.nbytes // WORD_BYTES,), torch.int32)
        return writers(words, [call.late for call in calls])

    def _reports(self) -> tuple[dict[str, Any], ...]:
        return tuple(self._shim.collect_reports()[:MAX_REPORTS]) if self._shim is not None else ()


def import_solution(source: str, filename: str) -> Any:
    """Write `source` into the private folder and run it as a module.

    `inspect.getsource` (which Triton needs) and tracebacks require a file. The text is compiled, not the file: Python
    decodes a file by the encoding that the file declares.
    """
    path = Path(os.getcwd()) / Path(filename).name
    path.write_text(source, encoding="utf-8", errors="surrogatepass")
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE_NAME] = module
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    return module
