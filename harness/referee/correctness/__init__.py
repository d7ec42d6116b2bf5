"""Comparison of outputs with the truth: errors, tolerances, precision classes, patterns."""
