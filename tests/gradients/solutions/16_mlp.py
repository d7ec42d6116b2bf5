import torch
import torch.nn.functional as F


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, up, up_bias, down, down_bias):
        inner = x @ up.T + up_bias
        ctx.save_for_backward(x, inner, up, down)
        return F.gelu(inner) @ down.T + down_bias

    @staticmethod
    def backward(ctx, grad):
        x, inner, up, down = ctx.saved_tensors
        share = 0.5 * (1 + torch.erf(inner * 0.5**0.5))
        # mutant, forgotten term: slope = share
        slope = share + inner * torch.exp(-(inner**2) / 2) * (2 * torch.pi) ** -0.5
        # mutant, detached path: of_inner = grad @ down
        of_inner = grad @ down * slope
        # mutant, transposed weight: of_down = (F.gelu(inner).T @ grad).reshape(down.shape)
        of_down = grad.T @ F.gelu(inner)
        # mutant, wrong reduction: return of_inner @ up, of_inner.T @ x, of_inner[0], of_down, grad.sum(0)
        return of_inner @ up, of_inner.T @ x, of_inner.sum(0), of_down, grad.sum(0)


class ModelNew(torch.nn.Module):
    def __init__(self, num_features, num_hidden):
        super().__init__()
        self.up = torch.nn.Linear(num_features, num_hidden)
        self.down = torch.nn.Linear(num_hidden, num_features)

    def forward(self, x):
        return Function.apply(x, self.up.weight, self.up.bias, self.down.weight, self.down.bias)
