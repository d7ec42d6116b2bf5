import torch


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    @staticmethod
    def backward(ctx, grad):
        cos, sin = ctx.saved_tensors
        a, b = grad.chunk(2, -1)
        # mutant, transposed rotation: first = a * cos - b * sin
        # mutant, forgotten term: first = a * cos
        first = a * cos + b * sin
        # mutant, detached path: second = b * cos
        second = b * cos - a * sin
        return torch.cat([first, second], -1), None, None


class ModelNew(torch.nn.Module):
    def __init__(self, max_length, dim):
        super().__init__()
        angles = torch.arange(max_length)[:, None] * 10000.0 ** (-torch.arange(0, dim, 2) / dim)
        self.register_buffer("cos", angles.cos()[:, None])
        self.register_buffer("sin", angles.sin()[:, None])

    def forward(self, x):
        return Function.apply(x, self.cos, self.sin)
