"""Tokens put in the order of their experts, neighbours staying in order."""

import torch
import torch.nn as nn
import torch.nn.functional as F

tokens = 32768
features = 1024
experts = 64


class Model(nn.Module):
    """Sorts the rows by expert, and says how many each has."""

    def __init__(self, experts: int) -> None:
        super().__init__()
        self.experts = experts

    def forward(self, x: torch.Tensor, expert: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x: (tokens, features), expert: (tokens,) of int64. Returns x by expert, and counts (experts,) of int64."""
        order = torch.argsort(expert, stable=True)
        return x[order], F.one_hot(expert, self.experts).sum(dim=0)


def get_inputs():
    # Experts differ in how much they are liked.
    liked = torch.randn(experts)
    return [torch.randn(tokens, features), (torch.randn(tokens, experts) + liked).argmax(dim=1)]


def get_init_inputs():
    return [experts]
