import torch
import torch.nn.functional as F


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, predictions, targets):
        ctx.save_for_backward(predictions, targets)
        return F.huber_loss(predictions, targets)

    @staticmethod
    def backward(ctx, grad):
        predictions, targets = ctx.saved_tensors
        # mutant, forgotten clamp: slope = predictions - targets
        slope = (predictions - targets).clamp(-1, 1)
        # mutant, wrong reduction: each = grad * slope / slope.shape[0]
        each = grad * slope / slope.numel()
        # mutant, wrong sign: return each, each.clone()
        # mutant, detached path: return each, None
        return each, -each


class ModelNew(torch.nn.Module):
    def forward(self, predictions, targets):
        return Function.apply(predictions, targets)
