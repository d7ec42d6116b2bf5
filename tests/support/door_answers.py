"""Fifty answers of a model, right and wrong ones, that go through every door of `harness.api.environments`."""

from __future__ import annotations

from tests.support.paths import ROOT

RELU = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        {}
"""

BODIES = (
    *("return torch.relu(x)", "return x.clamp(min=0)", "return torch.where(x > 0, x, 0.0)", "return (x + x.abs()) / 2"),
    *("return x", "return -x", "return torch.abs(x)", "return torch.sigmoid(x)", "return x.clamp(0, 1)"),
    *("return torch.zeros_like(x)", "return torch.relu(x) + 1e-2", "return torch.relu(x).half().float()"),
    *("return torch.relu(x).double()", "return torch.relu(x)[:-1]", "return [torch.relu(x)]", "return None"),
    *("return x.relu_()", "raise RuntimeError('no')", "return torch.rleu(x)", "return 1 / 0", "return torch.relu(x"),
)


def fenced(source: str) -> str:
    return f"Here is the module.\n\n```python\n{source}```\n"


def answers() -> list[tuple[str, str]]:
    """Problems and raw answers: the shipped examples, variants of ReLU, and texts without a solution."""
    found = []
    for path in sorted((ROOT / "solutions" / "examples").rglob("*.py")):
        problem = f"{path.parent.name}/{path.name.partition('_')[0]}"
        found.append((problem, fenced(path.read_text(encoding="utf-8"))))
    found += [("level1/19", fenced(RELU.format(body))) for body in BODIES]
    found += [
        ("level1/19", text)
        for text in (
            "I can't write this kernel.",
            "```python\nprint('no class')\n```",
            "```python\nclass ModelNew:\n    cut off",
            fenced("import no_such_package\n" + RELU.format("return torch.relu(x)")),
            fenced(
                RELU.format("return x").replace(
                    "    def forward", "    def __init__(self, wanted):\n        pass\n\n    def forward"
                )
            ),
        )
    ]
    return found[:50]
