"""Scores and leaderboard rows from records.

`scores` has the figures, `board` the rows.
"""

from harness.results.scoring.board import COLUMNS, By, LeaderboardRow, Metric, leaderboard
from harness.results.scoring.scores import (
    DECLARED,
    EAGER,
    THRESHOLDS,
    LikeGroup,
    Score,
    ScoredRecord,
    Selection,
    baselines_of,
    by_group,
    entries_of,
    fast_p,
    geometric_mean,
    main_baseline,
    noise_floor_of,
    pass_at_k,
    score,
    scored,
    select,
)

__all__ = [
    "COLUMNS",
    "DECLARED",
    "EAGER",
    "THRESHOLDS",
    "By",
    "LeaderboardRow",
    "LikeGroup",
    "Metric",
    "Score",
    "ScoredRecord",
    "Selection",
    "baselines_of",
    "by_group",
    "entries_of",
    "fast_p",
    "geometric_mean",
    "leaderboard",
    "main_baseline",
    "noise_floor_of",
    "pass_at_k",
    "score",
    "scored",
    "select",
]
