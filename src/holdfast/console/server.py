"""The process of a console: its token, its socket, and the server, until it is told to stop."""

import asyncio
import gc
import ipaddress
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from holdfast.client.security import SecuritySettings
from holdfast.console.app import make_app
from holdfast.console.connections import protocol_of
from holdfast.console.guard import AccessRules, names_of
from holdfast.console.host import ConsoleHost, ConsoleSettings
from holdfast.console.login_gate import LoginGate
from holdfast.registry.client import SchemaRegistry

TOKEN_NAME: Final = "console.token"
TOKEN_BYTES: Final = 24
TOKEN_TRIES: Final = 4
BACKLOG: Final = 128
"""Connections accepted in one turn of the loop. Fewer than there may be: who asks at once is read before so many have
come later that it is closed."""
MOST_AT_ONCE: Final = 500
STOP_S: Final = 1
KEPT_ALIVE_S: Final = 30
REGISTRY_S: Final = 3.0
"""A page waits no longer for a schema registry."""
YOUNG: Final = 10_000
GENERATIONS: Final = 10
NEVER: Final = 1_000_000_000
SWITCH_S: Final = 0.001


class ConsoleRefused(Exception):
    """It cannot be started so; the message names what, and what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleAsked:
    """What the command line says. ``data_dir`` has the token; ``port`` 0 is a free one. With ``metrics_only`` there are
    no pages, and so nothing that could be changed by it. ``registry``: URLs, or none."""

    bootstrap: tuple[str, ...]
    host: str
    port: int
    read_only: bool
    data_dir: Path
    metrics_only: bool = False
    registry: str = ""
    security: SecuritySettings | None = None
    has_user: bool = True
    """Whether ``security`` has a user and a password, where its mechanism needs them."""

    @property
    def logs_in(self) -> bool:
        """Whether whoever sees pages has to log in: where the brokers ask for a user and a password."""
        sasl = None if self.security is None else self.security.sasl
        return sasl is not None and sasl.token is None and not self.metrics_only

    @property
    def changes_nothing(self) -> bool:
        return self.read_only or self.metrics_only


def is_loopback(host: str) -> bool:
    """Whether nobody from elsewhere gets there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_open_acts(host: str, *, read_only: bool) -> None:
    """ConsoleRefused: from elsewhere nothing may be changed: there is no TLS."""
    if not read_only and not is_loopback(host):
        raise ConsoleRefused(
            f"--host {host}: others could change this cluster over a connection without TLS: expected 127.0.0.1, or "
            "--read-only"
        )


def listening(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on, before the server runs. ConsoleRefused names the address."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, proto)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen(BACKLOG)
        except BaseException:
            found.close()
            raise
        return found
    except OSError as e:
        raise ConsoleRefused(f"{host}:{port}: {e.strerror or e}: expected an address and a free port") from None


def url_of(listens: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = listens.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = socket.gethostname()
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def token_in(folder: Path) -> str:
    """The token of a directory, made where there is none; nobody but the user reads it. OSError."""
    path = folder / TOKEN_NAME
    folder.mkdir(parents=True, exist_ok=True)
    for _ in range(TOKEN_TRIES):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            _make_token(folder, path)
            continue
        with os.fdopen(fd) as found:
            os.fchmod(found.fileno(), 0o600)
            text = found.read().strip()
        if len(text) >= TOKEN_BYTES:
            return text
        path.unlink()  # a crash has left it empty
    raise ConsoleRefused(f"{path}: cannot be written")


def _make_token(folder: Path, path: Path) -> None:
    """Whole or not at all; whoever is first makes it."""
    new = folder / f".{TOKEN_NAME}.{os.getpid()}"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as out:
        os.fchmod(out.fileno(), 0o600)
        out.write(secrets.token_urlsafe(TOKEN_BYTES) + "\n")
    try:
        os.link(new, path)
    except FileExistsError:
        pass
    finally:
        new.unlink()


def settings_of(asked: ConsoleAsked, listens: socket.socket) -> ConsoleSettings:
    """Of what was asked for, and the socket that was bound for it. ConsoleRefused, OSError."""
    read_only = asked.changes_nothing
    refuse_open_acts(asked.host, read_only=read_only)
    if asked.logs_in and not is_loopback(asked.host):
        raise ConsoleRefused(
            f"--host {asked.host}: passwords would travel unencrypted: expected 127.0.0.1, behind a proxy with TLS for "
            "others, or --metrics-only"
        )
    if asked.metrics_only and not asked.has_user:
        raise ConsoleRefused("--metrics-only: expected sasl.jaas.config with a user in the file of --command-config")
    needs_token = not read_only and not asked.logs_in
    others = () if is_loopback(asked.host) else (socket.gethostname(), socket.getfqdn())
    rules = AccessRules(
        port=listens.getsockname()[1],
        token=token_in(asked.data_dir) if needs_token else "",
        read_only=read_only,
        names=names_of(asked.host, others),
        any_address=not is_loopback(asked.host),
    )
    return ConsoleSettings(
        bootstrap=asked.bootstrap,
        rules=rules,
        data_dir=None if read_only else asked.data_dir,
        metrics_only=asked.metrics_only,
        registry=registry_of(asked.registry),
        security=asked.security,
    )


def registry_of(urls: str) -> SchemaRegistry | None:
    """ConsoleRefused for what is no address of one."""
    try:
        return SchemaRegistry(urls, timeout=REGISTRY_S) if urls else None
    except ValueError as e:
        raise ConsoleRefused(str(e)) from None


class ConsoleServer(uvicorn.Server):
    """Ends the streams when it is told to stop: they would go on for as long as a page is open."""

    def __init__(self, config: uvicorn.Config, close_streams: Callable[[], None]) -> None:
        super().__init__(config)
        self._close_streams = close_streams

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ends quietly: uvicorn would raise the signal again after a clean end."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.handle_exit)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        asyncio.get_running_loop().call_soon(self._close_streams)
        super().handle_exit(sig, frame)


def spare_pages_long_pauses() -> None:
    """Python looks for unreachable cycles among all objects whenever there are many new ones: a third of a second with
    39,000 partitions, in which no page is answered. Snapshots have no cycles; those of a page die young, and are found
    among the young. The poller looks for the rest once in ten minutes, and gives way to a page sooner than a thread
    does by itself."""
    gc.set_threshold(YOUNG, GENERATIONS, NEVER)
    sys.setswitchinterval(SWITCH_S)


def _application(asked: ConsoleAsked, settings: ConsoleSettings) -> tuple[ASGIApp, Callable[[], None]]:
    """And what ends its streams."""
    if asked.logs_in and asked.security is not None:
        asked.data_dir.mkdir(parents=True, exist_ok=True)
        gate = LoginGate(settings, asked.security, has_own_user=asked.has_user)
        return gate, gate.close_streams
    host = ConsoleHost(settings)
    return make_app(host), host.news.close


def serve(asked: ConsoleAsked, listens: socket.socket) -> int:
    """Until SIGTERM or SIGINT. The exit code; ConsoleRefused and OSError before anything is served."""
    spare_pages_long_pauses()
    app, close_streams = _application(asked, settings_of(asked, listens))
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http=protocol_of(),
        backlog=BACKLOG,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_AT_ONCE,
        timeout_keep_alive=KEPT_ALIVE_S,
        timeout_graceful_shutdown=STOP_S,
    )
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    server = ConsoleServer(config, close_streams)
    server.run(sockets=[listens])
    return 0 if server.started else 1
