"""Attention of every query over all keys, without a mask."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 8
heads = 16
length = 1024
head_dim = 64
dtype = "float32"


class Model(nn.Module):
    """Takes softmax(Q K^T / sqrt(head_dim)) V for every head."""

    def forward(self, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
        """Q, K, V: (batch_size, heads, length, head_dim). Returns the same shape."""
        return F.scaled_dot_product_attention(Q, K, V)


def get_inputs():
    shape = (batch_size, heads, length, head_dim)
    return [torch.randn(shape, dtype=getattr(torch, dtype)) for _ in range(3)]


def get_init_inputs():
    return []
