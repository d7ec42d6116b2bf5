"""One episode of a model on a problem: evaluate answers, reward, comment.

Trusted side. Answers are untrusted: they are parsed here and executed only in the harness's sandbox.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from harness.api import Group, Harness, Result, RewardPolicy, reward
from harness.api.environments.prompts import feedback_prompt, prompt
from harness.catalog.extract import extract
from harness.core.problem import Problem
from harness.core.status import Status
from harness.results.reward import DEFAULT_POLICY


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The outcome of one answer.

    Attributes:
        status: Status of the solution; `no_model_new` if the answer holds none.
        reward: Reward of this answer alone; None if there is no verdict on it.
        feedback: Text for the author.
        speedup: Speedup of a solution that passed and was timed, else None.
        result: The evaluation; None if the answer holds no solution.
        gain: Change of the episode's total; see `KernelEnvironment.step`.
        done: Whether the episode ends here.
    """

    status: Status
    reward: float | None
    feedback: str
    speedup: float | None = None
    result: Result | None = None
    gain: float = 0.0
    done: bool = True


def score_answers(
    harness: Harness,
    problems: Sequence[str | Path | Problem],
    answers: Sequence[str],
    *,
    policy: RewardPolicy = DEFAULT_POLICY,
    tolerance: float | None = None,
) -> list[Step]:
    """Score a group or a batch of answers, as GRPO needs them.

    All are submitted at once, so that builds and evaluations overlap.

    Args:
        harness: Evaluates the solutions.
        problems: The problem of each answer, as for `Harness.submit`; for a group `[problem] * len(answers)`.
        answers: Raw answers of a model.
        policy: How to compute rewards.
        tolerance: Timing ends when no reward changes by more than that, 0.02 for example, in a third of the time. None
            times each solution as the harness does.

    Returns:
        One step for each answer, in their order.

    Raises:
        CatalogError: There is no such problem.
        ValueError: There are not as many problems as answers.
        ExecutorError: No device is left, or the harness was closed.
    """
    pairs = [(harness.problem(item), extract(answer)) for item, answer in zip(problems, answers, strict=True)]
    group = None if tolerance is None else Group.rewards(policy, tolerance)
    futures: list[Future[Result] | None] = [
        None if found.source is None else harness.submit(problem, found.source, author="policy", group=group)
        for problem, found in pairs
    ]
    steps = []
    for (_, found), future in zip(pairs, futures, strict=True):
        if future is None:
            text = f"The answer holds no solution: {found.reason}."
            steps.append(Step(status=Status.no_model_new, reward=policy.not_built, feedback=text))
            continue
        result = future.result()
        steps.append(
            Step(
                status=result.status,
                reward=reward(result, policy),
                feedback=result.feedback(),
                speedup=result.speedup,
                result=result,
            )
        )
    return steps


class KernelEnvironment:
    """One episode: reset with a problem, then step with answers.

        with Harness(device="host") as harness:
            environment = KernelEnvironment(harness, turns=3)
            messages = [environment.reset("level1/19")]
            step = environment.step(model(messages))

    An environment is cheap and holds one episode. Make one for each, over one `Harness`.

    Args:
        harness: Evaluates the solutions; the caller closes it.
        turns: Most answers in an episode, at least 1.
        policy: How to compute rewards.
        template: Template of the first prompt (`prompts.TEMPLATES`).
        gpu: GPU whose facts the first prompt states, or None.
        until_passed: Whether the first solution that passes ends the episode; otherwise the model may make it faster.

    Raises:
        ValueError: `turns` is below 1.
    """

    def __init__(
        self,
        harness: Harness,
        *,
        turns: int = 1,
        policy: RewardPolicy = DEFAULT_POLICY,
        template: str = "zero_shot",
        gpu: str | None = None,
        until_passed: bool = True,
    ) -> None:
        if turns < 1:
            raise ValueError(f"turns must be at least 1, not {turns}")
        self._harness, self._policy = harness, policy
        self._turns, self._until_passed = turns, until_passed
        self._template, self._gpu = template, gpu
        self._problem: Problem | None = None
        self.steps: list[Step] = []
        self.total = 0.0

    def fresh(self) -> KernelEnvironment:
        """Return another environment with the same settings, for another episode."""
        return KernelEnvironment(
            self._harness,
            turns=self._turns,
            policy=self._policy,
            template=self._template,
            gpu=self._gpu,
            until_passed=self._until_passed,
        )

    @property
    def done(self) -> bool:
        """Whether the episode has ended."""
        return bool(self.steps) and self.steps[-1].done

    def reset(self, problem: str | Path | Problem) -> str:
        """Begin an episode and return the prompt.

        Args:
            problem: As for `Harness.submit`.

        Raises:
            CatalogError: There is no such problem.
            ConfigError: There is no such template or GPU.
        """
        held = self._harness.problem(problem)
        text = prompt(held, template=self._template, gpu=self._gpu)
        self._problem, self.steps, self.total = held, [], 0.0
        return text

    def step(self, answer: str) -> Step:
        """Score an answer.

        The gains of an episode add up to `total`: the best reward of its answers. So neither repeating a half-right
        answer nor spoiling a right one pays. A disqualified solution ends the episode, and the total is its reward.

        Args:
            answer: Raw answer of a model.

        Returns:
            The outcome. Its feedback is the model's next prompt, unless `done`.

        Raises:
            RuntimeError: No episode is running: call `reset`.
            ExecutorError: As `score_answers`.
        """
        if self._problem is None or self.done:
            raise RuntimeError("no episode is running; call reset with a problem")
        (scored,) = score_answers(self._harness, [self._problem], [answer], policy=self._policy)
        total = self.total
        if scored.status is Status.disqualified:
            total = self._policy.disqualified
        elif scored.reward is not None:
            judged = any(step.reward is not None for step in self.steps)
            total = max(total, scored.reward) if judged else scored.reward
        passed = scored.status is Status.passed and self._until_passed
        done = passed or scored.status is Status.disqualified or len(self.steps) + 1 >= self._turns
        step = Step(
            status=scored.status,
            reward=scored.reward,
            feedback=scored.feedback if done else feedback_prompt(scored.feedback),
            speedup=scored.speedup,
            result=scored.result,
            gain=total - self.total,
            done=done,
        )
        self.steps.append(step)
        self.total = total
        return step
