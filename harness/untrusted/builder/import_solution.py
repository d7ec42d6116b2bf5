"""Import a solution with a recorder in place of `load_inline`.

Untrusted side: `main` runs in a sandboxed process without a GPU, is started by name and never imported by a trusted
module. Everything it sends is a claim of the solution. Each extension is sent as soon as it is asked for, so that a
process that dies or hangs loses nothing. See guides/design/discovery.md.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import sys
import threading
import traceback
import types
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.utils.cpp_extension

from harness.core.status import Failure, Status, one_line
from harness.protocol.channel import Channel
from harness.toolchain.arguments import restore
from harness.toolchain.packages import FOR_KERNELS
from harness.toolchain.spec import MAX_AHEAD_BYTES, MAX_EXTENSIONS, ExtensionSpec
from harness.untrusted.builder.fake_cuda import FakeCuda, Kind, pretended_cuda
from harness.untrusted.builder.load_inline_calls import Unforeseen, bind, read_files, read_inline

MODULE_NAME = "solution"

_MAX_NOTES = 32
_MAX_DETAIL = 20_000
"""Limits of the final message; the trusted side accepts no more."""

_REGISTERS = re.compile(r"\bTORCH_LIBRARY|\bRegisterOperators\b|\btorch::(?:Library|class_)\b")
"""Matches sources that register operators or classes with torch when they are loaded."""

_ABOUT_GPU = re.compile("cuda|nvidia|nvml|gpu|driver|cublas|cudnn", re.IGNORECASE)


class _NotBuilt(BaseException):
    """A function of an extension that is not built was called.

    Passes `except Exception`.
    """


class _Refused(RuntimeError):
    """The error that torch would raise for an extension that does not compile."""


def main(channel: Channel, fds: tuple[int, ...]) -> None:
    """Answer one request.

    The request holds `source`, `filename`, `arguments` (see `toolchain/arguments.py`; or null), `seed`, and `refused`,
    which maps digests of extensions to their build errors. Frames sent: `phase` (the phase that begins), `touched`
    (the fake CUDA was used), `extension` (with its `spec`), and at the end `done` with `failure` and `notes`.
    """
    request = channel.receive().message
    harvest = _Harvest(channel, request)
    failure = harvest.run()
    if failure is not None:
        failure = replace(failure, detail=failure.detail[-_MAX_DETAIL:])
    said = None if failure is None else failure.to_json()
    harvest.send({"type": "done", "failure": said, "notes": harvest.notes[:_MAX_NOTES]})


class _Harvest:
    """State of one request."""

    def __init__(self, channel: Channel, request: Mapping[str, Any]) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._source: str = request["source"]
        self._filename: str = request["filename"]
        self._arguments: Mapping[str, Any] | None = request["arguments"]
        self._seed: int = request["seed"]
        self._refused: Mapping[str, str] = request["refused"]
        self._sent: set[str] = set()
        self._left_bytes = MAX_AHEAD_BYTES
        self._phase = "parse"
        self._pretence = FakeCuda()
        self.notes: list[str] = []

    def send(self, message: Mapping[str, object]) -> None:
        with self._lock:
            self._channel.send(message)

    def run(self) -> Failure | None:
        self._enter("parse")
        try:
            compile(self._source, self._filename, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, OverflowError, SystemError, MemoryError, RecursionError) as error:
            return _syntax_failure(error)
        path = Path.cwd() / "solution" / Path(self._filename).name
        path.parent.mkdir(exist_ok=True)
        path.write_text(self._source, encoding="utf-8", errors="surrogatepass")
        self._replace()
        kinds: tuple[Kind, ...] = ("meta", "cpu")
        for kind in kinds:
            self._pretence = FakeCuda(lambda: self.send({"type": "touched"}))
            try:
                with pretended_cuda(kind, self._pretence):
                    return self._attempt(path, kind)
            except _NotBuilt:
                return None
            except BaseException as error:
                sys.stderr.write("".join(traceback.format_exception(error)))
                if (refused := _cause(error, _Refused)) is not None:
                    return _refused_failure(refused)
                if kind == kinds[0] and not self._pretence.touched and not _about_gpu(error):
                    return self._blame(error)
                self.notes.append(one_line(f"discovery ({kind}) stopped in {self._phase}: {error!r}", limit=300))
        return None

    def _attempt(self, path: Path, kind: Kind) -> Failure | None:
        """Import, construct and call once; return a certain fault of the solution."""
        self._enter("import")
        module = _import(self._source, path)
        model_new = getattr(module, "ModelNew", None)
        if not isinstance(model_new, type):
            if self._pretence.touched:
                return None
            return Failure(
                status=Status.no_model_new,
                reason="the file defines no class ModelNew at top level",
                evidence={"phase": self._phase},
            )
        self._enter("construct")
        arguments = () if self._arguments is None else restore(self._arguments["init"], kind)
        try:
            inspect.signature(model_new).bind(*arguments)
        except TypeError as error:
            if self._arguments is None:
                return None
            return Failure(
                status=Status.bad_constructor,
                reason=f"ModelNew does not accept the {len(arguments)} constructor arguments of Model: {error}",
                evidence={"phase": self._phase, "arguments": len(arguments)},
            )
        except ValueError:
            pass  # some types have no signature
        torch.default_generator.manual_seed(self._seed)  # torch.manual_seed would use the fake CUDA
        model = model_new(*arguments)
        self._enter("forward")
        self._pretence.touch()
        inputs = _guess_inputs(model) if self._arguments is None else restore(self._arguments["inputs"], kind)
        model(*inputs)
        return None

    def _enter(self, phase: str) -> None:
        self._phase = phase
        self.send({"type": "phase", "phase": phase})

    def _replace(self) -> None:
        extension = torch.utils.cpp_extension
        readers: tuple[tuple[str, Callable[[Mapping[str, Any]], ExtensionSpec]], ...] = (
            ("load_inline", read_inline),
            ("load", read_files),
        )
        for name, read in readers:
            setattr(extension, name, self._collector(getattr(extension, name), read))

    def _collector(
        self, original: Callable[..., Any], read: Callable[[Mapping[str, Any]], ExtensionSpec]
    ) -> Callable[..., Any]:
        def collect(*args: Any, **kwargs: Any) -> Any:
            given = bind(original, args, kwargs)
            try:
                spec = read(given)
            except Unforeseen as reason:
                self._pretence.touch()
                self.notes.append(one_line(f"left to the run: {reason}", limit=300))
                return _stub(str(given.get("name")), self._pretence)
            digest = spec.digest
            if (error := self._refused.get(digest)) is not None:
                raise _Refused(f"Error building extension '{spec.name}': {error}")
            with self._lock:
                size_bytes = spec.size_bytes
                fits = len(self._sent) < MAX_EXTENSIONS and size_bytes <= self._left_bytes
                fresh = digest not in self._sent and fits
                if fresh:
                    self._sent.add(digest)
                    self._left_bytes -= size_bytes
            if fresh:
                self.send({"type": "extension", "spec": spec.to_json()})
            if not spec.is_python_module or any(_REGISTERS.search(text) for text in spec.texts()):
                self._pretence.touch()  # its operators are missing from torch.ops
            if not spec.is_python_module:
                return f"{spec.name}.so"
            return _stub(spec.name, self._pretence)

        collect.__name__ = collect.__qualname__ = original.__name__
        collect.__doc__ = original.__doc__
        return collect

    def _blame(self, error: BaseException) -> Failure:
        kind = type(error).__name__
        evidence: dict[str, Any] = {"phase": self._phase, "exception": kind, "line": self._line_of(error)}
        where = f" (line {evidence['line']})" if evidence["line"] else ""
        detail = "".join(traceback.format_exception(error))
        if self._phase != "import":
            reason = f"ModelNew's constructor raised {kind}: {error}{where}"
            return Failure(status=Status.bad_constructor, reason=one_line(reason), evidence=evidence, detail=detail)
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in FOR_KERNELS:
            evidence["package"] = error.name
            reason = f"requires the package {error.name}, which is not installed here{where}"
            return Failure(status=Status.unsupported, reason=one_line(reason), evidence=evidence, detail=detail)
        said = "calls sys.exit" if isinstance(error, SystemExit) else f"raised {kind}: {error}"
        reason = f"importing the file {said}{where}"
        return Failure(status=Status.import_error, reason=one_line(reason), evidence=evidence, detail=detail)

    def _line_of(self, error: BaseException) -> int | None:
        """Return the last line of the solution in the exception's traceback."""
        name = Path(self._filename).name
        lines = [item.lineno for item in traceback.extract_tb(error.__traceback__) if Path(item.filename).name == name]
        return lines[-1] if lines else None


def _import(source: str, path: Path) -> types.ModuleType:
    """Run the text as the module at `path`.

    Python would decode the file itself by the encoding that it declares.
    """
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE_NAME] = module
    sys.path.insert(0, os.fspath(path.parent))
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    return module


def _guess_inputs(model: Any) -> tuple[torch.Tensor, ...]:
    """Make a matrix for each parameter of `forward` that needs a value."""
    needed = [
        item
        for item in inspect.signature(model.forward).parameters.values()
        if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD) and item.default is item.empty
    ]
    return tuple(torch.empty(64, 64) for _ in needed)


def _stub(name: str, pretence: FakeCuda) -> types.ModuleType:
    """Make a placeholder module, whose functions end the discovery when called."""

    def function(*_: Any, **__: Any) -> Any:
        pretence.touch()
        raise _NotBuilt(name)

    def lookup(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return function

    module = types.ModuleType(name)
    module.__getattr__ = lookup  # type: ignore[method-assign]
    return module


def _cause(error: BaseException, kind: type[BaseException]) -> BaseException | None:
    """Return the exception of that kind in the chain of causes of `error`, or None."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        if isinstance(current, kind):
            return current
        seen.add(id(current))
        current = current.__cause__ or current.__context__
    return None


def _about_gpu(error: BaseException) -> bool:
    """Whether an exception may be caused by the missing GPU."""
    if isinstance(error, NameError | TypeError | ImportError):
        return False
    return _ABOUT_GPU.search(" ".join(traceback.format_exception_only(error))) is not None


def _refused_failure(error: BaseException) -> Failure:
    return Failure(status=Status.compile_error, reason=one_line(str(error)), evidence={"phase": "build"})


def _syntax_failure(error: BaseException) -> Failure:
    evidence: dict[str, Any] = {"phase": "parse", "exception": type(error).__name__}
    reason = f"not valid Python: {str(error) or 'nested too deeply'}"  # the parser's MemoryError has no text
    if isinstance(error, SyntaxError):
        evidence["line"] = error.lineno
        reason = f"line {error.lineno}: {error.msg}" if error.lineno else f"not valid Python: {error.msg}"
        if error.text and error.text.strip():
            reason += f": {error.text.strip()}"
    return Failure(status=Status.syntax_error, reason=one_line(reason), evidence=evidence)
