"""Vocabulary of the harness: statuses, labels, problems, records, settings, statistics, files.

Both sides.
"""
