"""Referees' processes that are started before anything else of a run is done, and waited for after all of it.

Trusted side. A referee imports torch for longer than it takes to read the catalogue, find the solutions, open the run's
folder and import what all that needs: so it begins as soon as the run's device is known, and is told the rest later.
Whatever turns out to be wrong with the call meanwhile, its words are the same, and nothing of this is left behind. At
the end, a GPU's driver takes some tenths of a second to take a killed process apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from harness.core.config import RunConfig
from harness.core.environment import Environment
from harness.runner.executors import ExecutorError
from harness.runner.executors.process import WORKER, RefereeProcess, StartedProcess
from harness.runner.executors.slots import seats


class Prestart:
    """Started processes by the name of their slot, until they are taken, and referees that were killed, until they are
    gone. A context manager: at its end there is none of either.
    """

    def __init__(self) -> None:
        self._held: dict[str, StartedProcess] = {}
        self._killed: list[RefereeProcess] = []

    @property
    def slots(self) -> Sequence[str]:
        """The slots that there is a process for."""
        return list(self._held)

    def add(self, slot: str, process: StartedProcess) -> None:
        """Hold `process` for `slot`."""
        self._held[slot] = process

    def take(self, slot: str) -> StartedProcess | None:
        """The slot's process, which is the caller's from now on; None where there is none, or it was taken."""
        return self._held.pop(slot, None)

    def await_end(self, killed: RefereeProcess) -> None:
        """Wait for it at the end, when there is nothing else to do."""
        self._killed.append(killed)

    def close(self) -> None:
        """End what was not taken, and wait for all. Idempotent."""
        for process in self._held.values():
            process.kill()
        while self._held:
            _, process = self._held.popitem()
            process.close()
        while self._killed:
            self._killed.pop().close()

    def __enter__(self) -> Prestart:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start_ahead(config: RunConfig, environment: Environment, *, command: Sequence[str] = WORKER) -> Prestart:
    """A process for every slot of the run that `config` asks for. None where that run is not for this machine's
    referees, or has nothing to read: whoever goes on with it says what is wrong.
    """
    ahead = Prestart()
    if not _worth_it(config):
        return ahead
    try:
        # Where a process can't be made, or no GPU is visible, the executor meets that again.
        with suppress(ExecutorError, OSError):
            for slot, env in seats(config, environment):
                ahead.add(slot.name, StartedProcess(config.device, slot.name, env, command=command))
    except BaseException:
        ahead.close()
        raise
    return ahead


def _worth_it(config: RunConfig) -> bool:
    return config.executor == "local" and config.problems.is_dir() and all(path.exists() for path in config.paths)
