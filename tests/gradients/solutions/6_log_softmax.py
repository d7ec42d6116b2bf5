import torch


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.log_softmax(x, -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        # mutant, wrong reduction: total = grad
        total = grad.sum(-1, keepdim=True)
        # mutant, forgotten term: return grad.clone()
        return grad - y.exp() * total


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Function.apply(x)
