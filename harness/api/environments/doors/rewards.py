"""Reward functions for TRL's `GRPOTrainer` and verl.

Neither package is imported. What a policy could exploit:

* Rewards are per answer, so a policy that repeats one mediocre answer keeps its reward; the group's mean, which both
  trainers subtract, takes the gain away.
* `unjudged` (verl wants a number): an answer that makes the machine fail gets it. It must not exceed `not_built`, so
  that provoking errors of the harness never pays; TRL leaves such an answer out (None).
* The text around the code can't change a reward: only the block that `extract` takes is evaluated.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.api import Harness, RewardPolicy
from harness.api.environments.environment import score_answers
from harness.results.reward import DEFAULT_POLICY

_LOCK = threading.Lock()
_HARNESSES: dict[tuple[int, str, str], Harness] = {}


def trl_reward(harness: Harness, policy: RewardPolicy = DEFAULT_POLICY) -> Callable[..., list[float | None]]:
    """Return a function for `GRPOTrainer(reward_funcs=...)`.

    The training set has the columns `prompt` and `problem` (ids such as level1/19).

    Args:
        harness: Evaluates the solutions; keep it open for the whole training.
        policy: How to compute rewards.
    """

    def kernel_reward(completions: Sequence[Any], problem: Sequence[str], **_: object) -> list[float | None]:
        # A completion is a text or, of a conversation, a list of messages.
        answers = [item if isinstance(item, str) else str(item[-1]["content"]) for item in completions]
        return [step.reward for step in score_answers(harness, problem, answers, policy=policy)]

    return kernel_reward


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,
    *,
    device: str = "auto",
    problems: str = "problems",
    policy: Mapping[str, Any] | None = None,
    unjudged: float = 0.0,
    **_: object,
) -> dict[str, Any]:
    """Score one answer for verl.

    In verl's configuration: `custom_reward_function.path=pkg://harness.api.environments.doors.rewards`,
    `custom_reward_function.name=compute_score`, and `reward_kwargs` for the last four arguments.

    Args:
        data_source: Not used.
        solution_str: Raw answer of the model.
        ground_truth: Id of the problem.
        extra_info: Not used.
        device: As for `Harness`; each process makes one on its first call.
        problems: As for `Harness`.
        policy: Attributes of `RewardPolicy` that differ from its defaults.
        unjudged: Score if there is no verdict on the answer, at most the reward of a solution that was not built.

    Returns:
        `score`, `status` and `judged` (1, or 0 if there is no verdict).

    Raises:
        ValueError: `unjudged` is above the reward of a solution that was not built.
    """
    shaping = RewardPolicy(**(policy or {}))
    if unjudged > shaping.not_built:
        raise ValueError(f"unjudged must be at most {shaping.not_built}, or provoking errors would pay")
    (step,) = score_answers(_harness(device, problems), [ground_truth], [solution_str], policy=shaping)
    judged = step.reward is not None
    return {"score": step.reward if judged else unjudged, "status": step.status.value, "judged": int(judged)}


def _harness(device: Any, problems: str) -> Harness:
    """Return this process's harness: a forked process can't use its parent's."""
    key = (os.getpid(), str(device), problems)
    with _LOCK:
        if key not in _HARNESSES:
            _HARNESSES[key] = Harness(device=device, problems=problems)
        return _HARNESSES[key]
