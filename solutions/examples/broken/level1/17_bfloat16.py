"""MISTAKE: the product is computed in bfloat16, where the problem asks for float32. Fast, and right to two digits."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return (A.bfloat16() @ B.bfloat16().T).float()
