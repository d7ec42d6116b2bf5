"""The trust boundary: everything that the referee and the contestant both speak.

Floor 1: imports nothing of the harness. Both sides import it, so nothing secret lies here.
"""
