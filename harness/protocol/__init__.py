"""The trust boundary: the protocol between trusted processes (the referee) and untrusted ones (a contestant).

Both sides import it, so it must contain no secret.
"""
