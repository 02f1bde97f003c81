"""How ``holdfast up --secure`` itself is known to its brokers, and what it makes before it says that it is ready.

Owns the files of DIR/secure at a start, and the brokers' certificate as ``up`` shows it: the brokers take it for one of
them, who may everything. With it users get their passwords and the client its rights, once: what an administrator has
changed since then stays.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.cli.layout import BrokerLayout
from holdfast.cli.up_address import not_of_this_machine, port_is_free
from holdfast.cli.up_secure import ADMIN, BROKER_FILE, CA_CERTIFICATE, CLIENT, EXTRA, FOLDER


class SecureStartError(Exception):
    """The cluster cannot be secured; the message says what is missing."""


class Login:
    """``prepare`` before a broker starts; ``tls`` and ``place`` for questions; ``make_users`` when all serve."""

    def __init__(self, data_dir: str, nodes: Sequence[BrokerLayout]) -> None:
        self._data_dir = Path(data_dir)
        self._folder = self._data_dir / FOLDER
        self._nodes = nodes
        self._passwords: dict[str, str] = {}
        self.tls: ssl.SSLContext | None = None

    def prepare(self) -> list[str]:
        """Certificates and files, made or read; what to say of it. SecureStartError."""
        try:
            from holdfast.cli.up_certificates import ensure_certificates
            from holdfast.cli.up_secrets import SecretsError, users_of, write_client_files
        except ModuleNotFoundError as e:
            if (e.name or "").partition(".")[0] != "cryptography":
                raise
            raise SecureStartError(EXTRA) from None
        reach = self._nodes[0].reach
        try:
            port_is_free(0, reach.local)  # a start that is refused changes no certificate
        except OSError as e:
            raise SecureStartError(not_of_this_machine(reach.host, e)) from None
        is_new = not self._folder.exists()
        self._folder.mkdir(mode=0o700, exist_ok=True)
        os.chmod(self._folder, 0o700)
        made = ensure_certificates(
            self._folder, (self._nodes[0].reach.host,), (ADMIN, CLIENT), datetime.datetime.now(datetime.UTC)
        )
        try:
            self._passwords = users_of(self._folder)
        except SecretsError as e:
            raise SecureStartError(str(e)) from e
        write_client_files(
            self._data_dir,
            self._passwords,
            by_scram=[node.address for node in self._nodes],
            by_certificate=[node.certificates_address for node in self._nodes],
        )
        self.tls = ssl.create_default_context(cafile=str(self._folder / CA_CERTIFICATE))
        self.tls.load_cert_chain(self._folder / BROKER_FILE)
        return [] if is_new or not made else [f"certificates made anew: {', '.join(made)} in {self._folder}"]

    def make_users(self) -> str | None:
        """Passwords and rights, in a process of its own, as ``up`` has no event loop. Why there are none, or None."""
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                code = self._become_maker()
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        failed = os.waitstatus_to_exitcode(status) != 0
        return f"no users could be made: see {self._data_dir}/broker-1.log" if failed else None

    def _become_maker(self) -> int:
        from holdfast.cli.up_users import ensure_users
        from holdfast.model.errors import HoldfastError

        brokers = [f"{node.between.local}:{node.brokers_port}" for node in self._nodes]
        try:
            asyncio.run(ensure_users(brokers, self._folder, self._passwords))
        except HoldfastError as e:
            print(f"holdfast up: users: {e}", file=sys.stderr)
            return 1
        return 0
