"""Inspect (`inspect-ai`): a task, a solver with feedback turns, a scorer.

    inspect_ai.eval(kernel_task(harness, ["level1/19"], turns=3), model="openai/some-model")

What a policy could exploit:

* The score is the episode's total, the best reward of its answers: repeating an answer gains nothing.
* A sample without a verdict is unscored: it counts in no metric. If a policy could make the machine fail, its failures
  would vanish; the number of unscored samples is in the log, so read it beside the mean.
* Give the model no tools. A tool that runs code would run it on this machine, outside the harness's sandbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from harness.api import Harness, RewardPolicy
from harness.api.environments.doors import missing
from harness.api.environments.environment import KernelEnvironment
from harness.results.reward import DEFAULT_POLICY

try:
    from inspect_ai import Task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ChatMessageUser
    from inspect_ai.scorer import Score, mean, scorer, stderr
    from inspect_ai.solver import solver
except ImportError as error:
    raise missing("inspect") from error

EPISODE = "kernel_harness"
"""Key of the outcome in a sample's metadata."""


@solver
def kernel_solver(environment: KernelEnvironment) -> Any:
    """Ask for an answer and give feedback until the episode ends.

    Args:
        environment: Settings of the episodes: each sample gets a copy.
    """

    async def solve(state: Any, generate: Any) -> Any:
        episode = environment.fresh()
        await asyncio.to_thread(episode.reset, state.metadata["problem"])
        while not episode.done:
            state = await generate(state)
            step = await asyncio.to_thread(episode.step, state.output.completion)
            if not step.done:
                state.messages.append(ChatMessageUser(content=step.feedback))
        judged = any(step.reward is not None for step in episode.steps)
        state.metadata[EPISODE] = {
            "reward": episode.total if judged else None,
            "statuses": [step.status.value for step in episode.steps],
            "speedup": step.speedup,
            "feedback": step.feedback,
        }
        return state

    return solve


@scorer(metrics=[mean(), stderr()])
def kernel_scorer() -> Any:
    """Score a sample by the total that `kernel_solver` left in its metadata."""

    async def score(state: Any, target: Any) -> Any:
        outcome = state.metadata[EPISODE]
        given = {"answer": state.output.completion, "explanation": outcome["feedback"], "metadata": outcome}
        if outcome["reward"] is None:
            return Score.unscored(reason="no verdict", **given)
        return Score(value=outcome["reward"], **given)

    return score


def kernel_task(
    harness: Harness, problems: Sequence[str], *, policy: RewardPolicy = DEFAULT_POLICY, **settings: Any
) -> Any:
    """Return a task with one sample a problem.

    Args:
        harness: Evaluates the solutions; keep it open during the evaluation.
        problems: Ids of the problems.
        policy: How to compute rewards.
        settings: Further settings of `KernelEnvironment`: `turns`, `template`, `gpu`, `until_passed`.

    Raises:
        CatalogError: There is no such problem.
    """
    environment = KernelEnvironment(harness, policy=policy, **settings)
    samples = [Sample(id=item, input=environment.fresh().reset(item), metadata={"problem": item}) for item in problems]
    return Task(dataset=MemoryDataset(samples), solver=kernel_solver(environment), scorer=kernel_scorer())
