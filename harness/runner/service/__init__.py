"""A server that keeps builders and referees alive between runs, and its client.

Trusted side. One server serves one user on one machine, over a Unix socket. A call plans its run, keeps its records and
shows it as usual; only builds and evaluations happen in the server, for several runs at once. A run with other settings
waits until current runs end. Contestants can't reach the server: a call needs the token next to the socket, in a folder
that the sandbox hides from them.
"""


class ServiceError(Exception):
    """No server accepts this call, or the server is gone.

    The message says what to do.
    """
