import torch


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, student, teacher):
        log_q, log_p = torch.log_softmax(student, -1), torch.log_softmax(teacher, -1)
        ctx.save_for_backward(log_q, log_p)
        return (log_p.exp() * (log_p - log_q)).sum() / student.shape[0]

    @staticmethod
    def backward(ctx, grad):
        log_q, log_p = ctx.saved_tensors
        p, each = log_p.exp(), log_p - log_q
        # mutant, wrong reduction: share = grad / p.numel()
        share = grad / p.shape[0]
        # mutant, forgotten term: of_teacher = p * each * share
        # mutant, detached path: of_teacher = None
        of_teacher = p * (each - (p * each).sum(-1, keepdim=True)) * share
        # mutant, forgotten term: return log_q.exp() * share, of_teacher
        return (log_q.exp() - p) * share, of_teacher


class ModelNew(torch.nn.Module):
    def forward(self, student, teacher):
        return Function.apply(student, teacher)
