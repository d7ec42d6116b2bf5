import torch


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return torch.where(x > 0, x, weight[:, None] * x)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        # mutant, forgotten mask: negative = grad * x
        negative = torch.where(x > 0, 0.0, grad * x)
        # mutant, wrong reduction: of_weight = negative.sum(2)[0]
        # mutant, wrong reduction: of_weight = negative.mean((0, 2))
        of_weight = negative.sum((0, 2))
        # mutant, detached path: return torch.where(x > 0, grad, 0.0), of_weight
        return torch.where(x > 0, grad, weight[:, None] * grad), of_weight


class ModelNew(torch.nn.Module):
    def __init__(self, num_channels):
        super().__init__()
        self.prelu = torch.nn.PReLU(num_channels)
        torch.nn.init.uniform_(self.prelu.weight, 0.1, 0.5)

    def forward(self, x):
        return Function.apply(x, self.prelu.weight)
