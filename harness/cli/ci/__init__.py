"""Scoring what a branch submits: which solutions it adds or changes, gates, and the pages that CI systems show.

Outside layer; trusted side. `revision` reads the repository, `gates` the rules, `verdict` puts records and rules
together, `pages` renders. A branch is a submission: its solution files are read from it and nothing else. Problems,
gates and the results to compare with come from the base revision; the harness that runs has to, too, which whoever
starts it sees to (`.github/workflows/score.yml`), and the command refuses to run where it is the branch's own.
"""

from harness.cli.ci.pages import broken_rules, github_annotations, junit, summary
from harness.cli.ci.verdict import CiVerdict, Rejected, Scored, give_verdict
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
    "give_verdict",
    "junit",
    "read_gates",
    "summary",
]
