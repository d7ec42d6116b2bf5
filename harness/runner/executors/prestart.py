"""Start referee processes at the beginning of a run, and await them at its end.

Trusted side. A referee imports torch for longer than the runner takes to read the catalogue and open the run's folder.
So it starts as soon as the run's device is known, and receives its configuration later. If the call turns out to be
wrong meanwhile, its error message is the same and no process is left. At the end, a GPU's driver takes some tenths of a
second to clean up a killed process.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from harness.core.config import RunConfig
from harness.core.environment import Environment
from harness.runner.executors import ExecutorError
from harness.runner.executors.process import WORKER, RefereeProcess
from harness.runner.executors.slots import seats


class Prestart:
    """Started processes until they are taken, and killed referees until they exit.

    A context manager: at its end none of either is left.
    """

    def __init__(self) -> None:
        self.slots: dict[str, RefereeProcess] = {}
        """The processes that were not taken, by slot."""
        self._killed: list[RefereeProcess] = []

    def take(self, slot: str) -> RefereeProcess | None:
        """Hand over the slot's process; None if there is none or it was taken."""
        return self.slots.pop(slot, None)

    def await_end(self, killed: RefereeProcess) -> None:
        """Wait for this killed referee later, in `close`."""
        self._killed.append(killed)

    def close(self) -> None:
        """End the processes that were not taken, and wait for all. Idempotent."""
        for process in self.slots.values():
            process.kill()
        while self.slots:
            _, process = self.slots.popitem()
            process.close()
        while self._killed:
            self._killed.pop().close()

    def __enter__(self) -> Prestart:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start_ahead(config: RunConfig, environment: Environment, *, command: Sequence[str] = WORKER) -> Prestart:
    """Start a process for every slot of the run that `config` asks for.

    Starts none if the run does not use this machine's referees, or its problems or paths do not exist: later steps
    report that.
    """
    ahead = Prestart()
    if not _worth_it(config):
        return ahead
    try:
        # If a process can't start or no GPU is visible, the executor meets that again and reports it.
        with suppress(ExecutorError, OSError):
            for slot, env in seats(config, environment):
                ahead.slots[slot.name] = RefereeProcess(config.device, slot.name, env, command=command)
    except BaseException:
        ahead.close()
        raise
    return ahead


def _worth_it(config: RunConfig) -> bool:
    return (
        config.executor == "local"
        and (config.problems.is_dir() or config.problem is not None)
        and all(path.exists() for path in config.paths)
    )
