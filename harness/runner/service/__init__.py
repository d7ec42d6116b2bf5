"""A server that keeps builders and referees between runs, and the calls that let it build and judge.

Outside layer; trusted side. One server serves one user on one machine, over a Unix socket. Whoever calls plans its run,
keeps its records and shows it as ever: only building and judging are the server's, for several runs at once. What is
under way with other settings is waited for. Contestants can't reach it: a call shows the token that lies beside the
socket, in a folder that the sandbox keeps from them.
"""


class ServiceError(Exception):
    """There is no server that would do this, or it is gone. The message says what to do."""
