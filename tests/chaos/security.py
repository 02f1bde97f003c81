"""Who is who in a run with --secure: TLS and logins on every listener, rights, and logins that end.

    SASL_SSL   SCRAM-SHA-512: the clients of the run, as a user with the rights that `up --secure` gives
    SSL        the run itself, when it asks what a broker sees, by the certificate of an administrator
    INTERNAL   SASL_SSL, SCRAM-SHA-512: the brokers among themselves, by a user of their files

A login lasts ``REAUTH_MS``: whoever goes on has logged in again by then, clients and brokers alike.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.cli.up_certificates import ensure_certificates, write_secret
from holdfast.cli.up_secrets import SCRAM_MODULE, javas_scram, librdkafkas_scram, users_of
from holdfast.cli.up_secure import (
    ADMIN,
    BROKERS_PRINCIPAL,
    BY_CERTIFICATE,
    BY_PASSWORD,
    CA_CERTIFICATE,
    CLIENT,
    FOLDER,
    MECHANISM,
    broker_values,
)
from holdfast.cli.up_users import ensure_users

REAUTH_MS: Final = 5000
BETWEEN_BROKERS: Final = "between"
"""The user as whom brokers log in to each other."""
CLIENTS_WAIT: Final = {"socket.timeout.ms": 60_000}
"""librdkafka (2.16) counts requests that wait for its login among those of the socket: one that is eager by that would
take a broker that it logs in to again for one that is silent."""


class Security:
    """Made before the first broker is: certificates for ``hosts``, passwords. ``user``: whom brokers run as."""

    def __init__(self, cluster: Path, hosts: Sequence[str], user: int | None) -> None:
        self._cluster, self._folder = cluster, cluster / FOLDER
        self._folder.mkdir(mode=0o700, parents=True)
        ensure_certificates(self._folder, hosts, (ADMIN, CLIENT), datetime.datetime.now(datetime.UTC))
        self._passwords = users_of(self._folder)
        self.tls = ssl.create_default_context(cafile=str(self._folder / CA_CERTIFICATE))
        """Of the administrator."""
        self.tls.load_cert_chain(self._folder / f"{ADMIN}.pem")
        if user is not None:
            for path in (self._folder, *self._folder.iterdir()):
                os.chown(path, user, user)

    @property
    def listeners(self) -> tuple[str, str, str]:
        """Names: for clients, between brokers, for the run itself."""
        return BY_PASSWORD, "INTERNAL", BY_CERTIFICATE

    def settings(self) -> dict[str, str]:
        """Of every broker."""
        jaas = f'{SCRAM_MODULE} required username="{BETWEEN_BROKERS}" password="{self._passwords[ADMIN]}-too";'
        own = "listener.name.internal."
        return {
            **broker_values(str(self._cluster)),
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,SSL:SSL,INTERNAL:SASL_SSL",
            "operator.listener.names": f"{BY_PASSWORD},{BY_CERTIFICATE}",
            f"{own}sasl.enabled.mechanisms": MECHANISM,
            f"{own}{MECHANISM.lower()}.sasl.jaas.config": jaas,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "super.users": f"{BROKERS_PRINCIPAL};User:{BETWEEN_BROKERS};User:{ADMIN}",
            "connections.max.reauth.ms": str(REAUTH_MS),
        }

    def make_users(self, addresses: Sequence[tuple[str, int]]) -> None:
        """All brokers know of them when it returns; ``addresses`` of their listeners for certificates."""
        brokers = [f"{host}:{port}" for host, port in addresses]
        asyncio.run(ensure_users(brokers, self._folder, self._passwords))

    def librdkafka(self, user: str = CLIENT) -> dict[str, Any]:
        """Settings, but for the brokers' addresses."""
        found = librdkafkas_scram(self._folder, (), user, self._passwords[user])
        return {**{key: value for key, value in found.items() if key != "bootstrap.servers"}, **CLIENTS_WAIT}

    def aiokafka(self) -> dict[str, Any]:
        """Arguments."""
        return {
            "security_protocol": "SASL_SSL",
            "ssl_context": ssl.create_default_context(cafile=str(self._folder / CA_CERTIFICATE)),
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": CLIENT,
            "sasl_plain_password": self._passwords[CLIENT],
        }

    def command(self, bootstrap: str) -> tuple[str, ...]:
        """Options of a command of the administrator."""
        values = javas_scram(self._folder, (bootstrap,), ADMIN, self._passwords[ADMIN])
        path = self._folder / "run.properties"
        write_secret(path, "".join(f"{key}={value}\n" for key, value in values.items()))
        return "--bootstrap-server", bootstrap, "--command-config", str(path)
