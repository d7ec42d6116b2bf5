"""Routing of tokens to experts: probabilities of the best, made to sum to one, and how many tokens each gets."""

import torch
import torch.nn as nn
import torch.nn.functional as F

tokens = 65536
experts = 128
k = 8


class Model(nn.Module):
    """Softmax over the experts, the k largest, their share of their sum, and the load of every expert."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(self, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """scores: (tokens, experts). Returns weights and experts, each (tokens, k), and loads (experts,) of int64."""
        best, chosen = torch.topk(scores, self.k, dim=1)
        weights = torch.softmax(best, dim=1)
        load = F.one_hot(chosen, scores.shape[1]).sum(dim=(0, 1))
        return weights, chosen, load


def get_inputs():
    # A coarse random value plus a fine step that differs along the dimension: no two scores of a token are equal.
    coarse = torch.floor(torch.randn(tokens, experts) * 256) / 256
    return [coarse + torch.randperm(experts) / 2**16 + torch.floor(torch.randn(experts) * 128) / 256]


def get_init_inputs():
    return [k]
