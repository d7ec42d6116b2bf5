"""Environments for training: prompts in, answers scored, feedback out.

Trusted side. `KernelEnvironment` is the core; `harness.api.environments.doors` has the forms that other packages take.
"""

from harness.api.environments.environment import KernelEnvironment, Step, score_answers
from harness.api.environments.prompts import feedback_prompt, prompt

__all__ = ["KernelEnvironment", "Step", "feedback_prompt", "prompt", "score_answers"]
