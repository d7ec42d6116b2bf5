import torch


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.softmax(x, -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        # mutant, wrong reduction: total = (grad * y).mean(-1, keepdim=True)
        # mutant, wrong reduction: total = (grad * y).sum(0, keepdim=True)
        total = (grad * y).sum(-1, keepdim=True)
        # mutant, forgotten term: return y * grad
        return y * (grad - total)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Function.apply(x)
