"""Vocabulary and configuration of the harness: statuses, problems, records, settings, statistics, files.

Floor 1: imports nothing of the harness. Both sides of the trust boundary may import it.
"""
