"""Cross-entropy with smoothed labels and a penalty on the normaliser, one loss a token."""

import torch
import torch.nn as nn
import torch.nn.functional as F

tokens = 4096
vocabulary = 32000
smoothing = 0.1
z_weight = 0.01


class Model(nn.Module):
    """Adds z_weight * logsumexp(scores)^2 to the loss, as PaLM's training does."""

    def __init__(self, smoothing: float, z_weight: float) -> None:
        super().__init__()
        self.smoothing = smoothing
        self.z_weight = z_weight

    def forward(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """scores: (tokens, vocabulary), targets: (tokens,) of int64. Returns (tokens,)."""
        loss = F.cross_entropy(scores, targets, reduction="none", label_smoothing=self.smoothing)
        return loss + self.z_weight * torch.logsumexp(scores, dim=1).square()


def get_inputs():
    # Tokens of different size have losses of different size.
    return [torch.randn(tokens, vocabulary) * (1 + 3 * torch.rand(tokens, 1)), torch.randint(0, vocabulary, (tokens,))]


def get_init_inputs():
    return [smoothing, z_weight]
