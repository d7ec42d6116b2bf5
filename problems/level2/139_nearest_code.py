"""Nearest code of a codebook for every vector, as in vector quantisation; codes come in pairs of near-equals."""

import torch
import torch.nn as nn

vectors = 65536
codes = 1024
features = 64


class Model(nn.Module):
    """Squared distances to all codes, without the vector's own square, and the place of the smallest."""

    def forward(self, x: torch.Tensor, codebook: torch.Tensor) -> torch.Tensor:
        """x: (vectors, features), codebook: (codes, features). Returns indices (int64), (vectors,)."""
        squares = codebook.square().sum(dim=1)
        return torch.argmin(squares - 2 * (x @ codebook.T), dim=1)


def get_inputs():
    # Codes come in fours: two pairs, which TF32 can't tell apart, of two codes, which float32 sums can't.
    codebook = torch.randn((codes + 3) // 4, features).repeat_interleave(2, dim=0)
    codebook = codebook * (1 + 3e-4 * torch.randn(codebook.shape))
    codebook = codebook.repeat_interleave(2, dim=0)[:codes]
    return [torch.randn(vectors, features), codebook * (1 + 1e-7 * torch.randn(codes, features))]


def get_init_inputs():
    return []
