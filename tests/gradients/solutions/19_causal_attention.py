import torch


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, later):
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        p = torch.softmax(scores.masked_fill(later, float("-inf")), -1)
        ctx.save_for_backward(q, k, v, p)
        return p @ v

    @staticmethod
    def backward(ctx, grad):
        q, k, v, p = ctx.saved_tensors
        of_p = grad @ v.transpose(-1, -2)
        # mutant, wrong reduction: total = (of_p * p).sum(-2, keepdim=True)
        # mutant, forgotten term: total = 0.0
        total = (of_p * p).sum(-1, keepdim=True)
        # mutant, forgotten factor: of_scores = p * (of_p - total)
        of_scores = p * (of_p - total) * q.shape[-1] ** -0.5
        # mutant, transposed weight: of_k = of_scores @ q
        # mutant, detached path: of_k = torch.zeros_like(k)
        of_k = of_scores.transpose(-1, -2) @ q
        # mutant, transposed weight: return of_scores @ k, of_k, p @ grad, None
        return of_scores @ k, of_k, p.transpose(-1, -2) @ grad, None


class ModelNew(torch.nn.Module):
    def __init__(self, max_length):
        super().__init__()
        self.register_buffer("later", torch.ones(max_length, max_length, dtype=torch.bool).triu(1))

    def forward(self, q, k, v):
        return Function.apply(q, k, v, self.later)
