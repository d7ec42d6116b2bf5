"""Checks beside the judgement: compute-sanitizer and the small workload."""
