"""Score the solutions that a branch adds or changes, for CI systems.

Trusted side. Only solution files are read from the branch. Problems, gates and earlier results come from the base
revision. The harness itself must come from the base too (`.github/workflows/score.yml`); the command refuses to run if
it is the branch's own.
"""

from harness.cli.ci.findings import gitlab_code_quality, sarif
from harness.cli.ci.pages import broken_rules, github_annotations, junit, summary
from harness.cli.ci.verdict import CiVerdict, Rejected, Scored, score
from harness.core.git import FileChange, Repository, RevisionError
from harness.results.gates import GateResult, Gates, read_gates

__all__ = [
    "CiVerdict",
    "FileChange",
    "GateResult",
    "Gates",
    "Rejected",
    "Repository",
    "RevisionError",
    "Scored",
    "broken_rules",
    "github_annotations",
    "gitlab_code_quality",
    "junit",
    "read_gates",
    "sarif",
    "score",
    "summary",
]
