import torch
import torch.nn.functional as F


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y, at = F.max_pool2d(x, 3, stride=2, padding=1, return_indices=True)
        ctx.save_for_backward(at)
        ctx.shape = x.shape
        return y

    @staticmethod
    def backward(ctx, grad):
        (at,) = ctx.saved_tensors
        of_x = torch.zeros(*ctx.shape[:2], ctx.shape[2] * ctx.shape[3], device=grad.device)
        # mutant, wrong reduction: of_x.scatter_(2, at.flatten(2), grad.flatten(2))
        # mutant, forgotten term: of_x.scatter_add_(2, at[..., :-1].flatten(2), grad[..., :-1].flatten(2))
        of_x.scatter_add_(2, at.flatten(2), grad.flatten(2))
        return of_x.reshape(ctx.shape)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Function.apply(x)
