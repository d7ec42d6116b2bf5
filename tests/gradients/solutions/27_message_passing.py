import torch


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weights, ends):
        source, target = ends
        ctx.save_for_backward(x, weights, ends)
        return torch.zeros_like(x).index_add(0, target, x[source] * weights[:, None])

    @staticmethod
    def backward(ctx, grad):
        x, weights, (source, target) = ctx.saved_tensors
        # mutant, transposed graph: there = grad[source]
        there = grad[target]
        of_x = torch.zeros_like(x)
        # mutant, wrong reduction: of_x[source] = there * weights[:, None]
        # mutant, transposed graph: of_x.index_add_(0, target, there * weights[:, None])
        of_x.index_add_(0, source, there * weights[:, None])
        # mutant, wrong reduction: of_weights = (there * x[source]).mean(-1)
        # mutant, detached path: of_weights = None
        of_weights = (there * x[source]).sum(-1)
        return of_x, of_weights, None


class ModelNew(torch.nn.Module):
    def forward(self, x, weights, ends):
        return Function.apply(x, weights, ends)
