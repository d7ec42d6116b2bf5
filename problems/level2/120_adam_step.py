"""One step of AdamW: parameters and both moments are read and written once."""

import torch
import torch.nn as nn

size = 33554432
learning_rate = 0.1
beta1 = 0.9
beta2 = 0.95
epsilon = 0.01
decay = 0.1
step = 3


class Model(nn.Module):
    """Decoupled weight decay and bias-corrected moments; returns new tensors."""

    def __init__(
        self, learning_rate: float, beta1: float, beta2: float, epsilon: float, decay: float, step: int
    ) -> None:
        super().__init__()
        self.learning_rate = learning_rate
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.decay = decay
        self.step = step

    def forward(
        self, parameter: torch.Tensor, gradient: torch.Tensor, first: torch.Tensor, second: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Four times (size,), the second moment not negative. Returns the new parameter and moments."""
        first = self.beta1 * first + (1 - self.beta1) * gradient
        second = self.beta2 * second + (1 - self.beta2) * gradient * gradient
        direction = first / (1 - self.beta1**self.step)
        spread = torch.sqrt(second / (1 - self.beta2**self.step)) + self.epsilon
        kept = parameter * (1 - self.learning_rate * self.decay)
        return kept - self.learning_rate * direction / spread, first, second


def get_inputs():
    parameter, gradient, first = torch.randn(size), 0.1 * torch.randn(size), 0.1 * torch.randn(size)
    return [parameter, gradient, first, 0.01 * torch.rand(size)]


def get_init_inputs():
    return [learning_rate, beta1, beta2, epsilon, decay, step]
