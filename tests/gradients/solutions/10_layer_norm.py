import torch


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        mean, inverse = x.mean(-1, keepdim=True), torch.rsqrt(x.var(-1, correction=0, keepdim=True) + 1e-5)
        ctx.save_for_backward(x, mean, inverse, weight)
        return (x - mean) * inverse * weight + bias

    @staticmethod
    def backward(ctx, grad):
        x, mean, inverse, weight = ctx.saved_tensors
        normal, scaled = (x - mean) * inverse, grad * weight
        # mutant, wrong reduction: along = (scaled * normal).sum(-1, keepdim=True)
        along = (scaled * normal).mean(-1, keepdim=True)
        # mutant, detached path: shift = 0.0
        shift = scaled.mean(-1, keepdim=True)
        # mutant, forgotten term: of_x = inverse * (scaled - shift)
        of_x = inverse * (scaled - shift - normal * along)
        # mutant, wrong reduction: return of_x, (grad * normal).mean(0), grad.mean(0)
        return of_x, (grad * normal).sum(0), grad.sum(0)


class ModelNew(torch.nn.Module):
    def __init__(self, num_features):
        super().__init__()
        self.norm = torch.nn.LayerNorm(num_features)
        torch.nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        torch.nn.init.normal_(self.norm.bias)

    def forward(self, x):
        return Function.apply(x, self.norm.weight, self.norm.bias)
