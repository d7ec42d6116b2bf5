import torch


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gates):
        decay, h = torch.sigmoid(gates), torch.zeros_like(x)
        h[:, 0] = x[:, 0]
        for t in range(1, x.shape[1]):
            h[:, t] = decay[:, t] * h[:, t - 1] + x[:, t]
        ctx.save_for_backward(decay, h)
        return h

    @staticmethod
    def backward(ctx, grad):
        decay, h = ctx.saved_tensors
        of_x, of_decay = torch.empty_like(h), torch.zeros_like(h)
        carried = torch.zeros_like(h[:, 0])
        for t in range(h.shape[1] - 1, 0, -1):
            of_x[:, t] = grad[:, t] + carried
            # mutant, forgotten term: of_decay[:, t] = grad[:, t] * h[:, t - 1]
            of_decay[:, t] = of_x[:, t] * h[:, t - 1]
            # mutant, detached path: carried = torch.zeros_like(carried)
            # mutant, forgotten factor: carried = of_x[:, t]
            carried = of_x[:, t] * decay[:, t]
        of_x[:, 0] = grad[:, 0] + carried
        # mutant, forgotten factor: return of_x, of_decay * decay
        return of_x, of_decay * decay * (1 - decay)


class ModelNew(torch.nn.Module):
    def __init__(self, steps):
        super().__init__()

    def forward(self, x, gates):
        return Function.apply(x, gates)
