import torch


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.cumsum(x, 1)

    @staticmethod
    def backward(ctx, grad):
        # mutant, wrong reduction: back = grad.cumsum(1)
        back = grad.flip(1).cumsum(1).flip(1)
        # mutant, forgotten term: return back - grad
        # mutant, detached path: return grad.clone()
        return back


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Function.apply(x)
