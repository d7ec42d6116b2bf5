import torch
import torch.nn.functional as F


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.gelu(x, approximate="tanh")

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        k = (2 / torch.pi) ** 0.5
        t = torch.tanh(k * (x + 0.044715 * x**3))
        # mutant, forgotten term: inner = k
        inner = k * (1 + 3 * 0.044715 * x**2)
        # mutant, detached path: return grad * 0.5 * (1 + t)
        return grad * (0.5 * (1 + t) + 0.5 * x * (1 - t**2) * inner)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Function.apply(x)
