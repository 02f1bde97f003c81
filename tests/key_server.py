"""Who issues tokens, as a broker meets it: an address of https that answers with a JWKS, counted."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.certificates import Authority


class KeyServer:
    """``body`` and ``status`` are what it answers; ``asked`` how often it was. ``moved``: where it sends who asks."""

    def __init__(self, url: str, trusted: str, body: bytes) -> None:
        self.url = url
        self.trusted = trusted
        """The PEM text of its authority."""
        self.body = body
        self.status = 200
        self.moved: str | None = None
        self.asked = 0


@contextmanager
def key_server(directory: Path, body: bytes) -> Iterator[KeyServer]:
    """On a port of its own; ``directory`` is for its certificate."""
    authority = Authority.make()
    pem = authority.issue("localhost").write(directory / "key-server.pem")

    class Handler(BaseHTTPRequestHandler):
        timeout = 5

        def do_GET(self) -> None:
            found.asked += 1
            self.send_response(302 if found.moved else found.status)
            if found.moved:
                self.send_header("Location", found.moved)
            self.end_headers()
            self.wfile.write(found.body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("localhost", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    found = KeyServer(f"https://localhost:{server.server_port}/jwks", authority.pem, body)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
