import torch
import torch.nn.functional as F


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return F.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False)

    @staticmethod
    def backward(ctx, grad):
        height, width = ctx.shape[2:]
        inside = F.unfold(torch.ones(1, 1, height, width, device=grad.device), 3, padding=1, stride=2).sum(1)
        # mutant, wrong reduction: each = grad.flatten(2) / 9
        # mutant, forgotten factor: each = grad.flatten(2)
        each = grad.flatten(2) / inside
        spread = each[:, :, None].expand(-1, -1, 9, -1).flatten(1, 2)
        return F.fold(spread, (height, width), 3, padding=1, stride=2)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Function.apply(x)
