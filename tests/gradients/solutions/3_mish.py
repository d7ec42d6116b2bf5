import torch
import torch.nn.functional as F


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.mish(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        t = torch.tanh(F.softplus(x))
        # mutant, forgotten term: slope = 1 - t**2
        slope = (1 - t**2) * torch.sigmoid(x)
        # mutant, detached path: return grad * t
        return grad * (t + x * slope)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Function.apply(x)
