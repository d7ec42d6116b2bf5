import torch


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels):
        y = torch.log_softmax(logits, -1)
        ctx.save_for_backward(y, labels)
        return -(0.9 * y.gather(1, labels[:, None])[:, 0] + 0.1 * y.mean(-1)).mean()

    @staticmethod
    def backward(ctx, grad):
        y, labels = ctx.saved_tensors
        # mutant, forgotten term: target = torch.zeros_like(y)
        target = torch.full_like(y, 0.1 / y.shape[1])
        # mutant, forgotten term: target.scatter_add_(1, labels[:, None], torch.full_like(y[:, :1], 1.0))
        target.scatter_add_(1, labels[:, None], torch.full_like(y[:, :1], 0.9))
        # mutant, wrong reduction: return grad * (y.exp() - target), None
        return grad * (y.exp() - target) / y.shape[0], None


class ModelNew(torch.nn.Module):
    def forward(self, logits, labels):
        return Function.apply(logits, labels)
