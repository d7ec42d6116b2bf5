"""One step of gradient descent with Nesterov momentum and weight decay."""

import torch
import torch.nn as nn

size = 67108864
learning_rate = 0.1
momentum = 0.9
decay = 0.05


class Model(nn.Module):
    """Returns the new parameter and the new momentum as new tensors."""

    def __init__(self, learning_rate: float, momentum: float, decay: float) -> None:
        super().__init__()
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.decay = decay

    def forward(
        self, parameter: torch.Tensor, gradient: torch.Tensor, velocity: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Three times (size,). Returns the new parameter and velocity."""
        slope = gradient + self.decay * parameter
        velocity = self.momentum * velocity + slope
        return parameter - self.learning_rate * (slope + self.momentum * velocity), velocity


def get_inputs():
    return [torch.randn(size), torch.randn(size), torch.randn(size)]


def get_init_inputs():
    return [learning_rate, momentum, decay]
