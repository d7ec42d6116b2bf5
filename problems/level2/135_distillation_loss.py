"""Divergence of a student's from a teacher's probabilities at a temperature, one loss a token."""

import torch
import torch.nn as nn

tokens = 2048
vocabulary = 32000
temperature = 2.0


class Model(nn.Module):
    """Sums p * (log p - log q) over the classes of a row, times temperature^2."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        """student and teacher: scores (tokens, vocabulary). Returns (tokens,)."""
        log_q = torch.log_softmax(student / self.temperature, dim=1)
        log_p = torch.log_softmax(teacher / self.temperature, dim=1)
        return (log_p.exp() * (log_p - log_q)).sum(dim=1) * self.temperature**2


def get_inputs():
    # Tokens on which the two differ much, and tokens on which they differ little.
    student = torch.randn(tokens, vocabulary) * (1 + 3 * torch.rand(tokens, 1))
    return [student, torch.randn(tokens, vocabulary) * (1 + 3 * torch.rand(tokens, 1))]


def get_init_inputs():
    return [temperature]
