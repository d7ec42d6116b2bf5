"""One new token's attention over a cache of keys and values of different lengths, and the cache's new rows."""

import torch
import torch.nn as nn

batch_size = 16
heads = 32
groups = 8
head_dim = 128
capacity = 4096
features = heads * head_dim


class Model(nn.Module):
    """Projects the token, puts its key and value behind those in the cache, attends, projects back."""

    def __init__(self, heads: int, groups: int, head_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.groups = groups
        self.query = nn.Linear(heads * head_dim, heads * head_dim, bias=False)
        self.key = nn.Linear(heads * head_dim, groups * head_dim, bias=False)
        self.value = nn.Linear(heads * head_dim, groups * head_dim, bias=False)
        self.out = nn.Linear(heads * head_dim, heads * head_dim, bias=False)

    def forward(
        self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """x: (batch_size, features); keys and values: (batch_size, groups, capacity, head_dim); lengths: (batch_size,).

        Of a cache the first `lengths` rows count. Returns (batch_size, features) and the new key and value,
        each (batch_size, groups, head_dim).
        """
        batch, groups, capacity, head_dim = keys.shape
        query = self.query(x).view(batch, groups, self.heads // groups, head_dim)
        key = self.key(x).view(batch, groups, 1, head_dim)
        value = self.value(x).view(batch, groups, 1, head_dim)
        unused = torch.arange(capacity, device=x.device) >= lengths[:, None, None, None]
        old = (query @ keys.transpose(-2, -1)).masked_fill(unused, float("-inf"))
        scores = torch.cat((old, query @ key.transpose(-2, -1)), dim=-1) / head_dim**0.5
        weights = torch.softmax(scores, dim=-1)
        mixed = weights[..., :-1] @ values + weights[..., -1:] @ value
        return self.out(mixed.reshape(batch, -1)), key.squeeze(2), value.squeeze(2)


def get_inputs():
    cache = (batch_size, groups, capacity, head_dim)
    lengths = torch.randint(capacity // 4, capacity + 1, (batch_size,))
    return [4 * torch.randn(batch_size, features), torch.randn(cache), torch.randn(cache), lengths]


def get_init_inputs():
    return [heads, groups, head_dim]
