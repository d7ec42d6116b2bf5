import torch


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, running_mean, running_var):
        mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
        count = x.numel() // x.shape[1]
        running_mean.lerp_(mean, 0.1)
        running_var.lerp_(variance * (count / (count - 1)), 0.1)
        inverse = torch.rsqrt(variance + 1e-5)
        normal = (x - mean[:, None, None]) * inverse[:, None, None]
        ctx.save_for_backward(normal, inverse, weight)
        return normal * weight[:, None, None] + bias[:, None, None]

    @staticmethod
    def backward(ctx, grad):
        normal, inverse, weight = ctx.saved_tensors
        count = grad.numel() // grad.shape[1]
        of_weight, of_bias = (grad * normal).sum((0, 2, 3)), grad.sum((0, 2, 3))
        # mutant, wrong reduction: along, shift = of_weight / grad.shape[0], of_bias / grad.shape[0]
        along, shift = of_weight / count, of_bias / count
        # mutant, detached path: left = grad
        # mutant, forgotten term: left = grad - shift[:, None, None]
        left = grad - shift[:, None, None] - normal * along[:, None, None]
        return left * (inverse * weight)[:, None, None], of_weight, of_bias, None, None


class ModelNew(torch.nn.Module):
    def __init__(self, num_features):
        super().__init__()
        self.bn = torch.nn.BatchNorm2d(num_features)
        torch.nn.init.uniform_(self.bn.weight, 0.5, 1.5)
        torch.nn.init.normal_(self.bn.bias)

    def forward(self, x):
        bn = self.bn
        bn.num_batches_tracked.add_(1)
        return Function.apply(x, bn.weight, bn.bias, bn.running_mean, bn.running_var)
