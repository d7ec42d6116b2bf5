import torch


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, frozen, down, up):
        thin = x @ down.T
        ctx.save_for_backward(x, thin, frozen, down, up)
        return x @ frozen.T + 2.0 * thin @ up.T

    @staticmethod
    def backward(ctx, grad):
        x, thin, frozen, down, up = ctx.saved_tensors
        # mutant, forgotten factor: of_thin = grad @ up
        of_thin = 2.0 * grad @ up
        # mutant, forgotten term: of_x = grad @ frozen
        # mutant, transposed weight: of_x = grad @ frozen.T + of_thin @ down
        # mutant, detached path: of_x = of_thin @ down
        of_x = grad @ frozen + of_thin @ down
        # mutant, wrong reduction: return of_x, None, of_thin.T @ x, 2.0 * grad.T @ thin / x.shape[0]
        return of_x, None, of_thin.T @ x, 2.0 * grad.T @ thin


class ModelNew(torch.nn.Module):
    def __init__(self, num_features, rank):
        super().__init__()
        self.register_buffer("frozen", torch.randn(num_features, num_features) / num_features**0.5)
        self.down = torch.nn.Parameter(torch.randn(rank, num_features) / num_features**0.5)
        self.up = torch.nn.Parameter(torch.randn(num_features, rank) / rank**0.5)

    def forward(self, x):
        return Function.apply(x, self.frozen, self.down, self.up)
