import torch


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, bias):
        both = x + residual
        mean, inverse = both.mean(-1, keepdim=True), torch.rsqrt(both.var(-1, correction=0, keepdim=True) + 1e-5)
        normal = (both - mean) * inverse
        ctx.save_for_backward(normal, inverse, weight)
        return normal * weight + bias, both

    @staticmethod
    def backward(ctx, of_norm, of_sum):
        normal, inverse, weight = ctx.saved_tensors
        scaled = of_norm * weight
        along = (scaled * normal).mean(-1, keepdim=True)
        # mutant, forgotten term: back = inverse * (scaled - normal * along)
        # mutant, detached path: back = torch.zeros_like(scaled)
        back = inverse * (scaled - scaled.mean(-1, keepdim=True) - normal * along)
        # mutant, forgotten term: back = back + 0
        back = back + of_sum
        # mutant, wrong reduction: return back, back / 2, (of_norm * normal).sum(0), of_norm.sum(0)
        return back, back, (of_norm * normal).sum(0), of_norm.sum(0)


class ModelNew(torch.nn.Module):
    def __init__(self, num_features):
        super().__init__()
        self.norm = torch.nn.LayerNorm(num_features)
        torch.nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        torch.nn.init.normal_(self.norm.bias)

    def forward(self, x, residual):
        return Function.apply(x, residual, self.norm.weight, self.norm.bias)
