"""The trust boundary: the protocol between trusted and untrusted processes.

Both sides import it, so it must contain no secret.
"""
