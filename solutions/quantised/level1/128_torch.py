"""Values by a table of sixteen numbers."""

import torch


def values_of(numbers, scale):
    return numbers * scale


class ModelNew(torch.nn.Module):
    def forward(self, packed, scale, tensor_scale):
        half = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device=packed.device)
        numbers = torch.cat((half, -half))
        low, high = numbers[(packed & 15).int()], numbers[(packed >> 4).int()]
        values = torch.stack((low, high), dim=-1).view(packed.shape[0], -1, 16)
        return values_of(values, scale.float()[:, :, None] * tensor_scale).flatten(1)
