import torch
import torch.nn.functional as F


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return F.conv2d(x, weight, bias, padding=1)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        # mutant, transposed weight: of_x = F.conv_transpose2d(grad, weight.transpose(0, 1), padding=1)
        # mutant, forgotten flip: of_x = F.conv2d(grad, weight.transpose(0, 1), padding=1)
        of_x = F.conv_transpose2d(grad, weight, padding=1)
        # mutant, wrong reduction: of_weight = torch.nn.grad.conv2d_weight(x[:1], weight.shape, grad[:1], padding=1)
        of_weight = torch.nn.grad.conv2d_weight(x, weight.shape, grad, padding=1)
        # mutant, wrong reduction: return of_x, of_weight, grad.sum((2, 3))[0]
        # mutant, detached path: return of_x, of_weight, None
        return of_x, of_weight, grad.sum((0, 2, 3))


class ModelNew(torch.nn.Module):
    def __init__(self, num_channels):
        super().__init__()
        self.conv = torch.nn.Conv2d(num_channels, num_channels, 3, padding=1)

    def forward(self, x):
        return Function.apply(x, self.conv.weight, self.conv.bias)
