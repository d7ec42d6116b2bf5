"""Comparison of outputs with the truth: errors, tolerances, patterns."""
