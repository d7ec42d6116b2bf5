"""Stands in for a tool that watches a process over TCP: listens on the port named first, and runs the rest."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading


def serve(server: socket.socket) -> None:
    while True:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"the tool")


if __name__ == "__main__":
    server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    threading.Thread(target=serve, args=(server,), daemon=True).start()
    sys.exit(subprocess.run(sys.argv[2:], close_fds=False, check=False).returncode)
