import torch
import torch.nn.functional as F


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, taps, bias):
        late = F.pad(x, (3, 0))
        inner = bias[:, None] + sum(late[..., j : j + x.shape[-1]] * taps[:, :, j] for j in range(4))
        ctx.save_for_backward(late, inner, taps)
        return F.silu(inner)

    @staticmethod
    def backward(ctx, grad):
        late, inner, taps = ctx.saved_tensors
        s = torch.sigmoid(inner)
        # mutant, forgotten term: of_inner = grad * s
        # mutant, detached path: of_inner = grad
        of_inner = grad * (s + inner * s * (1 - s))
        length = grad.shape[-1]
        ahead = F.pad(of_inner, (0, 3))
        # mutant, forgotten flip: of_x = sum(ahead[..., j : j + length] * taps[:, :, j] for j in range(4))
        # mutant, forgotten term: of_x = sum(ahead[..., 3 - j : 3 - j + length] * taps[:, :, j] for j in range(1, 4))
        of_x = sum(ahead[..., 3 - j : 3 - j + length] * taps[:, :, j] for j in range(4))
        of_taps = torch.stack([(of_inner * late[..., j : j + length]).sum((0, 2)) for j in range(4)], -1)
        # mutant, wrong reduction: return of_x, of_taps[:, None] / grad.shape[0], of_inner.sum((0, 2))
        return of_x, of_taps[:, None], of_inner.sum((0, 2))


class ModelNew(torch.nn.Module):
    def __init__(self, num_channels):
        super().__init__()
        self.conv = torch.nn.Conv1d(num_channels, num_channels, 4, groups=num_channels)

    def forward(self, x):
        return Function.apply(x, self.conv.weight, self.conv.bias)
