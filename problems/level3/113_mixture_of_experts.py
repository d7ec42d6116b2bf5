"""A layer of small experts of which every token uses two, with the scores of the router given."""

import torch
import torch.nn as nn
import torch.nn.functional as F

tokens = 2048
features = 512
hidden_features = 1024
experts = 8
k = 2


class Model(nn.Module):
    """Runs every expert on all tokens, and sums by the gate's weights, which are zero for all but two."""

    def __init__(self, features: int, hidden_features: int, experts: int, k: int) -> None:
        super().__init__()
        self.k = k
        self.up = nn.Parameter(torch.randn(experts, features, hidden_features) * features**-0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden_features, features) * hidden_features**-0.5)

    def forward(self, x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """x: (tokens, features), scores: (tokens, experts). Returns (tokens, features)."""
        best, chosen = torch.topk(scores, self.k, dim=1)
        gate = torch.zeros_like(scores).scatter(1, chosen, torch.softmax(best, dim=1))
        hidden = F.silu(torch.einsum("tf,efh->eth", x, self.up))
        return torch.einsum("eth,ehf,te->tf", hidden, self.down, gate)


def get_inputs():
    # A coarse random value plus a fine step that differs along the dimension: no two scores of a token are equal.
    coarse = torch.floor(torch.randn(tokens, experts) * 256) / 256
    return [2 * torch.randn(tokens, features), coarse + torch.randperm(experts) / 2**16]


def get_init_inputs():
    return [features, hidden_features, experts, k]
