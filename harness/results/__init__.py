"""Records on disk, and everything computed from them: merges, comparisons, scores."""
