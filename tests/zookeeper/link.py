"""The way between a client and a real server, which a test can close in each direction, or reset.

Owns a listening socket, its connections and a thread for each direction of each. What is sent while a direction is
closed waits, as it would be sent again by TCP, and is lost with its connection.
"""

from __future__ import annotations

import contextlib
import socket
import threading


class Link:
    """``connect`` is the address for the client; what it sends gets to ``port``."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._changed = threading.Condition()
        self._closed: set[str] = set()
        self._sockets: set[socket.socket] = set()
        self._is_over = False
        self.taken = 0
        """Connections so far."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.connect = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *, to_server: bool = True, to_client: bool = True) -> None:
        """Nothing gets through any more; nobody is told."""
        with self._changed:
            self._closed |= ({"to_server"} if to_server else set()) | ({"to_client"} if to_client else set())

    def mend(self) -> None:
        """Everything gets through; what waits on a connection that is still there arrives."""
        with self._changed:
            self._closed.clear()
            self._changed.notify_all()

    def reset(self) -> None:
        """Every connection is over, and what was under way is lost."""
        with self._changed:
            sockets, self._sockets = self._sockets, set()
            for each in sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._is_over = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # which wakes who accepts
        self._listener.close()
        self.reset()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.taken += 1
            try:
                server = socket.create_connection(("127.0.0.1", self._port), timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._changed:
                if self._is_over:
                    return
                self._sockets |= {client, server}
            for source, target, direction in ((client, server, "to_server"), (server, client, "to_client")):
                threading.Thread(target=self._pump, args=(source, target, direction), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, direction: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                with self._changed:
                    self._changed.wait_for(lambda: direction not in self._closed or source not in self._sockets)
                    if source not in self._sockets:
                        break
                target.sendall(data)
        with self._changed:
            self._sockets -= {source, target}
            for each in (source, target):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._changed.notify_all()
