"""Verifiers (v1): a taskset of problems and an environment with feedback turns.

    from harness.api.environments.doors.verifiers import *
    from harness.api.environments.doors.verifiers import __all__

A module with these lines, `kernels.py` for example, is what verifiers takes as `--env.taskset.id kernels`.

What a policy could exploit:

* The reward is the episode's total, the best reward of its answers: repeating an answer gains nothing.
* An episode without a verdict fails, so that it is retried or dropped. Bound the retries: a policy that could make the
  machine fail would otherwise draw again until it likes the outcome.
* Pin a harness without tools (`null`): an agent with a shell works on this machine, outside the harness's sandbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.api import Harness, RewardPolicy
from harness.api.environments.doors import missing
from harness.api.environments.environment import KernelEnvironment
from harness.catalog import load_problems

try:
    import verifiers.v1 as vf
    from pydantic import Field
except ImportError as error:
    raise missing("verifiers") from error

__all__ = ["KernelEnv", "KernelEnvConfig", "KernelTask", "KernelTaskset", "KernelTasksetConfig"]


class KernelData(vf.TaskData):
    """The problem of a task."""

    problem: str


class KernelTask(vf.Task[KernelData]):
    """One problem."""


class KernelTasksetConfig(vf.TasksetConfig):
    """Problems, device, and what differs from the defaults of `RewardPolicy`."""

    problems: list[str] = Field(default_factory=list)
    policy: dict[str, Any] = Field(default_factory=dict)
    folder: str = "problems"
    device: str = "auto"
    turns: int = 1


class KernelTaskset(vf.Taskset[KernelTask, KernelTasksetConfig]):
    """One task a problem; without names, all problems of the folder."""

    def load(self) -> Iterator[Any]:
        """Yield the tasks."""
        catalog = load_problems(Path(self.config.folder))
        for name in self.config.problems or catalog:
            held = catalog.resolve(name)
            # No prompt: the environment plays the user and opens the conversation.
            yield KernelTask(KernelData(name=held.id, prompt=None, problem=held.id), self.config.task)


class KernelEnvConfig(vf.EnvConfig):
    """The environment's only role is the model that writes kernels."""

    player: vf.AgentConfig = vf.AgentConfig()


class KernelEnv(vf.Env[KernelEnvConfig]):
    """The environment: scores answers here, never in the agent's runtime."""

    async def start(self) -> None:
        """Make the harness."""
        config = self.taskset.config
        self._harness = Harness(device=config.device, problems=config.folder)

    async def stop(self) -> None:
        """End its processes."""
        if hasattr(self, "_harness"):
            await asyncio.to_thread(self._harness.close)

    async def run(self, task: Any, agents: Any) -> None:
        """Play one episode and record its reward."""
        config = self.taskset.config
        episode = KernelEnvironment(self._harness, turns=config.turns, policy=RewardPolicy(**config.policy))
        text = await asyncio.to_thread(episode.reset, task.data.problem)
        async with agents.player.interaction(task) as interaction:
            while not episode.done:
                segment = await interaction.turn(text)
                if segment.terminated:
                    break
                text = (await asyncio.to_thread(episode.step, segment.last_reply)).feedback
        if not any(step.reward is not None for step in episode.steps):
            raise RuntimeError(f"no verdict on any answer to {task.data.problem}")
        interaction.trace.record_reward("kernel", episode.total)
        interaction.trace.info["statuses"] = [step.status.value for step in episode.steps]
