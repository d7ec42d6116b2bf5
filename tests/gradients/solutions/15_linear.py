import torch


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return x @ weight.T + bias

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        # mutant, transposed weight: of_x = grad @ weight.T
        of_x = grad @ weight
        # mutant, transposed weight: of_weight = x.T @ grad
        of_weight = grad.T @ x
        # mutant, wrong reduction: return of_x, of_weight, grad.mean(0)
        # mutant, detached path: return of_x, of_weight, None
        return of_x, of_weight, grad.sum(0)


class ModelNew(torch.nn.Module):
    def __init__(self, num_features):
        super().__init__()
        self.linear = torch.nn.Linear(num_features, num_features)

    def forward(self, x):
        return Function.apply(x, self.linear.weight, self.linear.bias)
