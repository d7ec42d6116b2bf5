"""Workspaces, audit subjects and labels of the checks on a small workload.

Trusted side.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from harness.core.problem import Problem, Workload
from harness.core.status import Status
from harness.core.task import Outcome, Task
from harness.protocol.kernel_packages import imports_kernel_package
from harness.protocol.messages import Attach, Burst, Call, CallMode
from harness.referee.audit.audit import AuditSubject
from harness.referee.contestants.client import load_request
from harness.referee.problem.workspace import Workspace, key_of

KEPT = 6
"""Unused workspaces kept ready, for the current problem and for those whose audits run ahead."""


@dataclass(slots=True, kw_only=True)
class _Held:
    key: Hashable
    workspace: Workspace
    lent: bool = False


class SmallWorkspaces:
    """Workspaces that `make` makes on demand. Not thread-safe."""

    def __init__(self, make: Callable[[Problem, Workload], Workspace]) -> None:
        self._make = make
        self._held: list[_Held] = []

    def lend(self, problem: Problem, workload: Workload) -> Workspace:
        """A workspace for the borrower's exclusive use until `give_back`.

        Raises the exceptions of `make`.
        """
        key = key_of(problem, workload)
        found = next((held for held in self._held if held.key == key and not held.lent), None)
        if found is None:
            self._give_up(KEPT - 1)
            found = _Held(key=key, workspace=self._make(problem, workload))
            self._held.append(found)
        found.lent = True
        found.workspace.publish()
        return found.workspace

    def get_ready(self, problem: Problem, workload: Workload) -> None:
        """Make an unused workspace for this problem, unless there is one.

        Raises the exceptions of `make`.
        """
        if not any(held.key == key_of(problem, workload) for held in self._held):
            self.give_back(self.lend(problem, workload))

    def give_back(self, workspace: Workspace) -> None:
        """End a loan; no process of the solution maps the arena any more. Idempotent."""
        for held in self._held:
            if held.workspace is workspace and held.lent:
                held.lent = False
                # `_give_up` closes the least recently used first.
                self._held.remove(held)
                self._held.append(held)
                return

    def close(self) -> None:
        """Close all of them, including lent ones."""
        for held in self._held:
            held.workspace.close()
        self._held.clear()

    def _give_up(self, keep: int) -> None:
        """Close the least recently used, until at most `keep` unused ones are left."""
        idle = [held for held in self._held if not held.lent]
        for held in idle[: max(0, len(idle) - keep)]:
            held.workspace.close()
            self._held.remove(held)


SPECIALISED = "specialised_shape"
"""Label: right at the requested sizes, wrong or failing at the problem's small sizes."""

INCOMPLETE = "audit_incomplete"
"""Label: a tool of the audit was missing or did not finish, or nothing could be audited."""

AUDITED_CALLS = 2
"""Calls under each tool; the second one finds memory as the first left it."""

ANSWERED, ELSEWHERE = range(AUDITED_CALLS), range(AUDITED_CALLS, 2 * AUDITED_CALLS)
"""Sets of the small workspace with the calls' inputs and kept answers, and sets for the outputs of all other tools."""

FIRST_FREE = ELSEWHERE.stop
"""The first set that no tool writes to."""

LARGEST_FULL_BYTES = 64 * 2**20
"""If a problem declares no small workload, the full one is audited, provided that one set is at most this large."""

EXPLAINED = frozenset(
    {
        Status.wrong_value,
        Status.low_precision,
        Status.non_finite,
        Status.wrong_state,
        Status.mutated_input,
        Status.cuda_error,
        Status.crashed,
    }
)
"""Failures whose cause the audit may name; other statuses need no further explanation."""


_BUILDS_LATER = re.compile(r"\b(triton|load|cupy|numba|nvrtc|_compile_kernel|jiterator)\b")
"""Names that alone say so, for example behind `importlib.import_module`; others only by an import."""


def builds_later(task: Task) -> bool:
    """Whether a solution may run kernels that were not built before."""
    return imports_kernel_package(task.source) or _BUILDS_LATER.search(task.source) is not None


def auditable(task: Task) -> bool:
    """Whether a solution may have kernels of its own that are not checked yet."""
    return not task.checked_on_host and (bool(task.parts) or builds_later(task))


def whole_as_small(task: Task, set_bytes: int) -> Workload | None:
    """The workload to check if no small one is declared: the full one if small."""
    return task.workload if set_bytes <= LARGEST_FULL_BYTES else None


def subject_of(
    task: Task, workspace: Workspace, attach: Attach, *, calls: int, gpu_minor: int | None = None
) -> AuditSubject:
    """Make the audit of `task` over the first sets of `workspace`, as published.

    Fills these sets. Outputs that are not checked go to the sets after them, if there are enough.
    """
    count = min(calls, len(workspace.sets))
    for index in range(count):
        workspace.draw(index)
    workspace.device.synchronize()

    def requests(outputs: range) -> Burst:
        return Burst(
            calls=tuple(
                Call(
                    inputs=workspace.sets[index].inputs,
                    outputs=workspace.sets[place].outputs,
                    state=workspace.sets[place].state,
                    seed=workspace.call_seed(index),
                    mode=CallMode.LATENCY,  # without the cache flush, whose writes a tool would watch
                )
                for index, place in zip(range(count), outputs, strict=False)
            ),
            input_tree=workspace.tree.to_json(),
            state_names=workspace.traits.updates_state,
            restore_state=bool(workspace.traits.updates_state),
            coerce_device=True,
        )

    return AuditSubject(
        attach=attach,
        arena_fd=workspace.arena.fd,
        load=load_request(task, workspace),
        burst=requests(ANSWERED),
        elsewhere=requests(ELSEWHERE if len(workspace.sets) >= FIRST_FREE else ANSWERED),
        readable=task.readable,
        gpu_minor=gpu_minor,
        builds_later=builds_later(task),
        source=task.source,
        filename=task.filename,
        parts=task.parts,
        kernels=frozenset(task.kernels),
        log_path=task.log_path,
    )


def unaudited(task: Task, outcome: Outcome, set_bytes: int) -> Outcome:
    """Label a solution that should have been audited and was not.

    `set_bytes` is the size of one set of its workload.
    """
    if outcome.status is not Status.passed or not auditable(task):
        return outcome
    if task.small is None and whole_as_small(task, set_bytes) is None:
        why = (
            "the problem declares no small workload and none can be derived (harness problems derive says why), and "
            f"{set_bytes / 2**20:.0f} MiB a set are too much for the tools"
        )
    else:
        why = "the small workload could not be prepared: too little memory, or a fault (run harness problems lint)"
    evidence = {**outcome.evidence, "audit": {"not_run": why}}
    return replace(outcome, evidence=evidence, labels=(*outcome.labels, INCOMPLETE))
