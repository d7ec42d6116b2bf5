"""Vocabulary: statuses, labels, problems, records, settings, statistics, files.

Both sides.
"""
