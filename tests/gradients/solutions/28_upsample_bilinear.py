import torch
import torch.nn.functional as F


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = list(x.shape)
        return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)

    @staticmethod
    def backward(ctx, grad):
        sizes = [2 * ctx.shape[2], 2 * ctx.shape[3]]
        # mutant, forgotten term: whole = 4 * torch.nn.functional.avg_pool2d(grad, 2)
        # mutant, wrong reduction: whole = torch.nn.functional.avg_pool2d(grad, 2)
        whole = torch.ops.aten.upsample_bilinear2d_backward(grad, sizes, ctx.shape, False)
        # mutant, wrong factor: return whole / 4
        return whole


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Function.apply(x)
