"""Run the compilations of one solution in threads, each as early as possible.

Trusted side. Compilations start from guesses (static scan of the solution's text), then from the discovery's claims as
they arrive. Only the final list of the discovery counts; the others are ended. See guides/design/discovery.md.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from harness.toolchain.build_processes import Abandon
from harness.toolchain.compile_extension import Compiler, CompileResult
from harness.toolchain.spec import ExtensionSpec
from harness.toolchain.static_discovery import foresee

PARALLEL = 4
"""Extensions of one solution that compile at the same time."""

MAX_GUESSES = 4
"""Most extensions that start from the static scan: as many as compile at the same time."""


@dataclass(slots=True, eq=False)
class _PendingCompilation:
    """One compilation. `tried` or `error` is set when `over` is."""

    spec: ExtensionSpec
    from_text: bool
    abandon: Abandon = field(default_factory=Abandon)
    over: threading.Event = field(default_factory=threading.Event)
    tried: CompileResult | None = None
    error: BaseException | None = None
    unwanted: bool = False
    """If true, the result is not needed, and its lease is released when the compilation ends."""


class Compilations:
    """The compilations of one solution.

    Thread-safe. `close` ends all compilations whose result was not taken.
    """

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._room = threading.BoundedSemaphore(PARALLEL)
        self._lock = threading.Lock()
        self._begun: dict[str, _PendingCompilation] = {}
        self._foreseen = False
        self._known = False
        """Whether the discovery has ended, so that no more guesses may start."""

    def foresee(self) -> None:
        """Start the extensions that the static scan finds, in the background. Idempotent."""
        with self._lock:
            if self._foreseen or self._known:
                return
            self._foreseen = True
        threading.Thread(target=self._foresee, name="foresee", daemon=True).start()

    def begin(self, spec: ExtensionSpec) -> None:
        """Start compiling an extension, unless it has started."""
        with self._lock:
            self._begin(spec, from_text=False)

    def keep(self, digests: Collection[str]) -> None:
        """End all compilations but these, and stop guessing.

        Args:
            digests: Digests of the extensions that the solution asks for.
        """
        with self._lock:
            self._known = True
            others = [self._begun.pop(digest) for digest in list(self._begun) if digest not in digests]
        for begun in others:
            self._drop(begun)

    def result(self, spec: ExtensionSpec) -> CompileResult:
        """Wait for an extension's result, and start it if necessary.

        May be called once per extension.

        Raises:
            Exception: The one that `Compiler.build` raised.
        """
        with self._lock:
            begun = self._begin(spec, from_text=False)
        begun.over.wait()
        with self._lock:
            self._begun.pop(spec.digest, None)
        if begun.error is not None:
            raise begun.error
        assert begun.tried is not None
        tried = begun.tried
        if begun.from_text and tried.module is not None and not tried.module.cached:
            tried.module = replace(tried.module, begun_from_text=True)
        return tried

    def close(self) -> None:
        """End all compilations whose result was not taken."""
        self.keep(())

    def _begin(self, spec: ExtensionSpec, *, from_text: bool) -> _PendingCompilation:
        if (known := self._begun.get(spec.digest)) is not None:
            return known
        begun = _PendingCompilation(spec, from_text)
        # Before it is listed: if no thread can be started this raises, and no caller must wait for it.
        threading.Thread(target=self._compile, args=(begun,), name="extension", daemon=True).start()
        self._begun[spec.digest] = begun
        return begun

    def _drop(self, begun: _PendingCompilation) -> None:
        with self._lock:
            begun.unwanted = True
            held = begun.tried
        if held is not None and held.lease is not None:
            held.lease.release()
        begun.abandon.ask()

    def _compile(self, begun: _PendingCompilation) -> None:
        """Compile in a thread of its own."""
        tried = None
        try:
            with self._room:
                begun.abandon.heed()
                tried = self._compiler.build(begun.spec, begun.abandon)
        except BaseException as error:  # raised again by `result`, if it is called
            begun.error = error
        with self._lock:
            begun.tried = tried
            unwanted = begun.unwanted
        if unwanted and tried is not None and tried.lease is not None:
            tried.lease.release()
        begun.over.set()

    def _foresee(self) -> None:
        """Run the static scan in a thread of its own."""
        specs = foresee(
            self._compiler.source,
            zygote=self._compiler.zygotes.light,
            sandbox=self._compiler.sandbox,
            limit=MAX_GUESSES,
        )
        for spec in specs:
            with self._lock:
                if self._known:
                    return
                self._begin(spec, from_text=True)
