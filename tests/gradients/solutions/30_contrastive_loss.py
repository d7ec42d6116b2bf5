import torch
import torch.nn.functional as F


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, texts, images):
        scale = texts.shape[1] ** -0.5
        scores = texts @ images.T * scale
        own = torch.arange(scores.shape[0], device=scores.device)
        ctx.save_for_backward(texts, images, torch.softmax(scores, 0), torch.softmax(scores, 1))
        return (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2

    @staticmethod
    def backward(ctx, grad):
        texts, images, down, along = ctx.saved_tensors
        count = texts.shape[0]
        # mutant, forgotten term: both = (down + along) / 2
        # mutant, detached path: both = along - torch.eye(count, device=grad.device)
        both = (down + along) / 2 - torch.eye(count, device=grad.device)
        # mutant, wrong reduction: of_scores = grad * both * texts.shape[1] ** -0.5
        of_scores = grad * both / count * texts.shape[1] ** -0.5
        # mutant, transposed weight: return of_scores @ images, of_scores @ texts
        return of_scores @ images, of_scores.T @ texts


class ModelNew(torch.nn.Module):
    def forward(self, texts, images):
        return Function.apply(texts, images)
