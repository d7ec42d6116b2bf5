"""The compilations of one solution: each begun as early as somebody asks for it, and asked after when it is known.

Trusted side. Imports the rest of `build` and the vocabulary. What begins one is a guess at first (what the solution's
text says, before anything of it was executed), then the harvest's claims as they arrive; what counts is what the
harvest has asked for when it has come to its end. The rest is ended and forgotten: a wrong guess costs its processor
time.
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
"""Extensions of one solution that compile at a time."""

MAX_GUESSES = 4
"""Extensions that begin because the text names them: as many as compile at a time."""


@dataclass(slots=True, eq=False)
class _PendingCompilation:
    """One compilation. `tried` or `error` is there when it is `over`."""

    spec: ExtensionSpec
    from_text: bool
    abandon: Abandon = field(default_factory=Abandon)
    over: threading.Event = field(default_factory=threading.Event)
    tried: CompileResult | None = None
    error: BaseException | None = None
    unwanted: bool = False
    """Whether nobody will ask after it: what it holds when it is over is let go."""


class Compilations:
    """What is being compiled for one solution. Safe for threads; `close` ends what nobody asked after."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._room = threading.BoundedSemaphore(PARALLEL)
        self._lock = threading.Lock()
        self._begun: dict[str, _PendingCompilation] = {}
        self._foreseen = False
        self._known = False
        """Whether it is known by now what is asked for, so that guessing is over."""

    def foresee(self) -> None:
        """Begin with what the solution's text says, in the background. Idempotent."""
        with self._lock:
            if self._foreseen or self._known:
                return
            self._foreseen = True
        threading.Thread(target=self._foresee, name="foresee", daemon=True).start()

    def begin(self, spec: ExtensionSpec) -> None:
        """Have it compiled, if it is not yet."""
        with self._lock:
            self._begin(spec, from_text=False)

    def keep(self, digests: Collection[str]) -> None:
        """These are asked for: end the others, and guess no more."""
        with self._lock:
            self._known = True
            others = [self._begun.pop(digest) for digest in list(self._begun) if digest not in digests]
        for begun in others:
            self._drop(begun)

    def result(self, spec: ExtensionSpec) -> CompileResult:
        """What came of it, once: waits for it, and begins it where nobody has. Raises what `Compiler.build` raises."""
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
        """End all that was not asked after."""
        self.keep(())

    def _begin(self, spec: ExtensionSpec, *, from_text: bool) -> _PendingCompilation:
        if (known := self._begun.get(spec.digest)) is not None:
            return known
        begun = _PendingCompilation(spec, from_text)
        # Where no thread can be had this raises, and nobody may wait for what none is at.
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
        """A thread's life."""
        tried = None
        try:
            with self._room:
                begun.abandon.heed()
                tried = self._compiler.build(begun.spec, begun.abandon)
        except BaseException as error:  # for whoever asks after it; nobody may
            begun.error = error
        with self._lock:
            begun.tried = tried
            unwanted = begun.unwanted
        if unwanted and tried is not None and tried.lease is not None:
            tried.lease.release()
        begun.over.set()

    def _foresee(self) -> None:
        """A thread's life."""
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
