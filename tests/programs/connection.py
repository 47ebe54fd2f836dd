"""Holds an open TCP connection to itself; opens another when it breaks, as clients do."""

import socket
import sys
import time


def connect() -> tuple[socket.socket, socket.socket]:
    mine = socket.create_connection(listening.getsockname())
    return mine, listening.accept()[0]


listening = socket.create_server(("127.0.0.1", 0))
pair, broken = connect(), 0
for step in range(int(sys.argv[1])):
    try:
        pair[0].sendall(b"ping\n")
        if pair[1].recv(16) != b"ping\n":
            raise ConnectionResetError("the connection is closed")
    except OSError:
        broken += 1
        pair = connect()
    print("ok", step, "broken connections:", broken, flush=True)
    time.sleep(0.2)
