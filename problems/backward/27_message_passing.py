"""Weighted messages along the edges of a graph, summed at their ends."""

import torch
import torch.nn as nn

nodes = 32768
edges = 262144
dim = 128


class Model(nn.Module):
    """One step of a graph network; features and weights have gradients."""

    def forward(self, x: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        """x: (nodes, dim), weights: (edges,), ends: (2, edges) integers, from and to. Returns (nodes, dim)."""
        source, target = ends
        return torch.zeros_like(x).index_add(0, target, x[source] * weights[:, None])


def get_inputs():
    return [torch.randn(nodes, dim), torch.randn(edges), torch.randint(nodes, (2, edges))]


def get_init_inputs():
    return []
