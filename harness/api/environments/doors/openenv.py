"""OpenEnv: an environment class and its web application.

    uvicorn.run(kernel_app(harness), port=8000)

What a policy could exploit:

* Clients add up the rewards of an episode's steps. A step's reward is therefore its gain: the sum is the best reward
  of the episode, and repeating an answer gives 0.
* The problem is chosen at reset, by the trainer. A policy that may call reset itself would choose the easiest one: give
  it `step` only.
* An answer without a verdict has the reward None, which some clients read as 0: that is at most `not_built`.
* The server has no log-in: bind it to the loopback interface or put it behind one.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from harness.api import Harness
from harness.api.environments.doors import missing
from harness.api.environments.environment import KernelEnvironment

try:
    from openenv.core.env_server.http_server import create_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State
except ImportError as error:
    raise missing("openenv") from error


class KernelAction(Action):
    """An answer of a model, raw."""

    answer: str


class KernelObservation(Observation):
    """What the model reads next: the prompt, or feedback on its answer."""

    text: str
    status: str | None = None
    speedup: float | None = None


class OpenEnvKernels(Environment):
    """One session of a client: episodes over one harness.

    Args:
        environment: The episode.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, environment: KernelEnvironment) -> None:
        super().__init__()
        self._environment = environment
        self._episode = ""

    def reset(self, seed: int | None = None, episode_id: str | None = None, problem: str = "", **_: Any) -> Any:
        """Begin an episode with `problem`, the id of a problem; no seed is used."""
        self._episode = episode_id or uuid4().hex
        return KernelObservation(text=self._environment.reset(problem))

    def step(self, action: Any, timeout_s: float | None = None, **_: Any) -> Any:
        """Score an answer; the harness's own limits of time hold."""
        step = self._environment.step(action.answer)
        return KernelObservation(
            text=step.feedback,
            status=step.status.value,
            speedup=step.speedup,
            reward=None if step.reward is None else step.gain,
            done=step.done,
        )

    @property
    def state(self) -> Any:
        """The episode's id and number of steps."""
        return State(episode_id=self._episode, step_count=len(self._environment.steps))


def kernel_app(harness: Harness, *, sessions: int = 8, **settings: Any) -> Any:
    """Return a FastAPI application that serves the environment.

    Args:
        harness: Evaluates the solutions of all sessions.
        sessions: Most sessions at once.
        settings: Further settings of `KernelEnvironment`: `turns`, `policy`, `template`, `gpu`, `until_passed`.
    """
    environment = KernelEnvironment(harness, **settings)
    return create_app(
        lambda: OpenEnvKernels(environment.fresh()),
        KernelAction,
        KernelObservation,
        env_name="kernel_harness",
        max_concurrent_envs=sessions,
    )
