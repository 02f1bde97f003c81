"""A schema registry as a real HTTP server in a thread: as much of Confluent's protocol as clients ask of it."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Registered:
    """What is registered, and what was asked. ``answers`` stand instead of what the server would say itself."""

    ids: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    """Ids of the versions from 1 on."""
    authorization: str | None = None
    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def register(self, number: int, subject: str, schema: str, **more: Any) -> None:
        """``more``: schemaType, references, and ``serialized`` for Protobuf."""
        self.ids[number] = {"schema": schema, **more}
        self.subjects.setdefault(subject, []).append(number)

    def answer(self, path: str, query: dict[str, list[str]]) -> dict[str, Any] | tuple[int, str]:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        match parts:
            case ["schemas", "ids", number]:
                found = int(number)
                if found not in self.ids:
                    return 40403, "Schema not found"
                return self._body(found, query)
            case ["subjects", subject, "versions", version]:
                ids = self.subjects.get(subject)
                if ids is None:
                    return 40401, f"Subject '{subject}' not found."
                at = len(ids) if version == "latest" else int(version)
                if not 1 <= at <= len(ids):
                    return 40402, f"Version {version} not found."
                return {"subject": subject, "version": at, "id": ids[at - 1], **self._body(ids[at - 1], query)}
            case _:
                return 404, "HTTP 404 Not Found"

    def _body(self, number: int, query: dict[str, list[str]]) -> dict[str, Any]:
        body = dict(self.ids[number])
        serialized = body.pop("serialized", None)
        if query.get("format") == ["serialized"]:
            body["schema"] = serialized
        return body


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[Registered]:
    registered = Registered()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registered.asked.append(self.path)
            split = urlsplit(self.path)
            if self.path in registered.answers:
                self._send(*registered.answers[self.path])
            elif registered.authorization not in (None, self.headers.get("Authorization")):
                self._send(401, {}, b'{"error_code": 401, "message": "Unauthorized"}')
            else:
                match registered.answer(split.path, parse_qs(split.query)):
                    case (code, message):
                        self._send(404, {}, json.dumps({"error_code": code, "message": message}).encode())
                    case body:
                        self._send(200, {}, json.dumps(body).encode())

        def _send(self, code: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(code)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    registered.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registered
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
