import torch
import torch.nn.functional as F


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gates, values):
        ctx.save_for_backward(gates, values)
        return F.silu(gates) * values

    @staticmethod
    def backward(ctx, grad):
        gates, values = ctx.saved_tensors
        s = torch.sigmoid(gates)
        # mutant, forgotten term: of_gates = grad * values * s
        of_gates = grad * values * (s + gates * s * (1 - s))
        # mutant, detached path: return of_gates, torch.zeros_like(grad)
        return of_gates, grad * gates * s


class ModelNew(torch.nn.Module):
    def forward(self, gates, values):
        return Function.apply(gates, values)
