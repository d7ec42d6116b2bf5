"""One product for every 128 values along a row, each scaled and added in float32."""

import torch


def narrow(scaled):
    return scaled.to(torch.float8_e4m3fn)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, weight_scale):
        total = torch.zeros(x.shape[0], weight.shape[0], device=x.device)
        columns = weight_scale.float().repeat_interleave(128, dim=0)
        for number, (part, of) in enumerate(zip(x.float().split(128, dim=1), weight.float().split(128, dim=1))):
            scale = torch.exp2(torch.frexp(part.abs().amax(1, keepdim=True) / 448).exponent)
            total.addcmul_(narrow(part / scale).float() @ of.T, scale * columns[:, number])
        return total.bfloat16()
