"""Check solutions beside their evaluation: compute-sanitizer and small workload."""
