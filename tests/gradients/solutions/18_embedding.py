import torch


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tokens, weight):
        ctx.save_for_backward(tokens, weight)
        return weight[tokens] * 8.0

    @staticmethod
    def backward(ctx, grad):
        tokens, weight = ctx.saved_tensors
        of_weight = torch.zeros_like(weight)
        # mutant, wrong reduction: of_weight[tokens] = 8.0 * grad
        # mutant, forgotten factor: of_weight.index_add_(0, tokens, grad)
        of_weight.index_add_(0, tokens, 8.0 * grad)
        # mutant, detached path: return None, None
        return None, of_weight


class ModelNew(torch.nn.Module):
    def __init__(self, num_rows, dim):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(num_rows, dim))

    def forward(self, tokens):
        return Function.apply(tokens, self.weight)
