import torch


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        inverse = torch.rsqrt(x.square().sum(-1, keepdim=True) + 1.0)
        ctx.save_for_backward(x, inverse)
        return x * inverse

    @staticmethod
    def backward(ctx, grad):
        x, inverse = ctx.saved_tensors
        # mutant, wrong reduction: along = (grad * x).sum(0, keepdim=True)
        along = (grad * x).sum(-1, keepdim=True)
        # mutant, forgotten term: return inverse * (grad - x * inverse * along)
        # mutant, detached path: return inverse * grad
        return inverse * (grad - x * inverse**2 * along)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Function.apply(x)
