import torch


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        inverse = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(x, inverse, weight)
        return x * inverse * weight

    @staticmethod
    def backward(ctx, grad):
        x, inverse, weight = ctx.saved_tensors
        # mutant, forgotten term: normal, scaled = x * inverse, grad
        normal, scaled = x * inverse, grad * weight
        # mutant, wrong reduction: along = (scaled * normal).sum(-1, keepdim=True)
        along = (scaled * normal).mean(-1, keepdim=True)
        # mutant, detached path: of_x = inverse * scaled
        of_x = inverse * (scaled - normal * along)
        # mutant, wrong reduction: return of_x, (grad * normal)[:-1].sum(0)
        return of_x, (grad * normal).sum(0)


class ModelNew(torch.nn.Module):
    def __init__(self, num_features):
        super().__init__()
        self.weight = torch.nn.Parameter(0.5 + torch.rand(num_features))

    def forward(self, x):
        return Function.apply(x, self.weight)
