"""What the cluster has stored for a listener of clients holds from the first connection after a start."""

from __future__ import annotations

import socket
import ssl
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from holdfast.testing import wait_for
from tests.system.test_tls import TIMEOUT_S, TlsBrokers, tls_brokers

pytestmark = [pytest.mark.system, pytest.mark.embedded_store("brokers of its own")]

API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", ""))
SERVES = "broker 1 serves"


def is_answered(brokers: TlsBrokers) -> bool:
    """Whether a client without a certificate is; OSError: it is not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=brokers.authority.pem)
    plain = socket.create_connection(("127.0.0.1", brokers.ports[1][0]), TIMEOUT_S)
    with plain, context.wrap_socket(plain, server_hostname="localhost") as tls:
        tls.sendall(API_VERSIONS)
        return bool(tls.recv(4))


def test_who_must_show_a_certificate_must_from_the_first_connection(tmp_path: Path) -> None:
    with tls_brokers(tmp_path) as brokers:
        assert is_answered(brokers)
        admin = AdminClient(brokers.client(brokers.authority.issue("alice")))
        entry = ConfigEntry(
            "listener.name.ssl.ssl.client.auth", "required", incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

        def is_refused() -> bool:
            try:
                return not is_answered(brokers)
            except OSError:
                return True

        wait_for(is_refused, "the certificate is asked for", timeout_s=TIMEOUT_S)
        before = brokers.processes.pop()
        before.terminate()
        assert before.wait(TIMEOUT_S) == 0
        starts = brokers.log().count(SERVES)
        brokers.run(1)
        end_s, tried = time.monotonic() + TIMEOUT_S, 0
        while brokers.log().count(SERVES) == starts or not tried:
            assert time.monotonic() < end_s, brokers.log()
            try:
                answered = is_answered(brokers)
            except ConnectionRefusedError:
                continue
            except OSError:
                answered = False
            tried += 1
            assert not answered
        assert is_refused()
