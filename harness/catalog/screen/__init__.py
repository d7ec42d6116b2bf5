"""Screen a solution's source statically.

Findings are advice for reviewers, never a verdict.
"""

from harness.catalog.screen.findings import ScreenFinding, Screening
from harness.catalog.screen.rules import RULES, Family, Rule, Weight
from harness.catalog.screen.screening import CUDA_SUFFIXES, screen, screen_cuda

__all__ = ["CUDA_SUFFIXES", "RULES", "Family", "Rule", "ScreenFinding", "Screening", "Weight", "screen", "screen_cuda"]
