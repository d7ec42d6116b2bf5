import torch


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, groups):
        parts = x.reshape(x.shape[0], groups, -1)
        mean, inverse = parts.mean(-1, keepdim=True), torch.rsqrt(parts.var(-1, correction=0, keepdim=True) + 1e-5)
        normal = ((parts - mean) * inverse).reshape(x.shape)
        ctx.save_for_backward(normal, inverse, weight)
        ctx.groups = groups
        return normal * weight[:, None, None] + bias[:, None, None]

    @staticmethod
    def backward(ctx, grad):
        normal, inverse, weight = ctx.saved_tensors
        scaled = (grad * weight[:, None, None]).reshape(grad.shape[0], ctx.groups, -1)
        parts = normal.reshape(scaled.shape)
        along = (scaled * parts).mean(-1, keepdim=True)
        # mutant, forgotten term: of_x = inverse * (scaled - scaled.mean(-1, keepdim=True))
        # mutant, detached path: of_x = inverse * scaled
        of_x = inverse * (scaled - scaled.mean(-1, keepdim=True) - parts * along)
        # mutant, wrong reduction: of_weight = (grad * normal).sum((2, 3))[0]
        of_weight = (grad * normal).sum((0, 2, 3))
        return of_x.reshape(grad.shape), of_weight, grad.sum((0, 2, 3)), None


class ModelNew(torch.nn.Module):
    def __init__(self, num_groups, num_channels):
        super().__init__()
        self.norm = torch.nn.GroupNorm(num_groups, num_channels)
        torch.nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        torch.nn.init.normal_(self.norm.bias)

    def forward(self, x):
        return Function.apply(x, self.norm.weight, self.norm.bias, self.norm.num_groups)
