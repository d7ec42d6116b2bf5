"""Records on disk and what is computed from them: reading, writing, merging, comparing, scores."""
