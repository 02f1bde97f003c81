"""``holdfast up --host``: a cluster of one machine for clients of others."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast.testing import Hosts
from holdfast.testing.view import ask

pytestmark = pytest.mark.system

UP = (sys.executable, "-m", "holdfast.cli.main", "up", "--log-dirs", "1", "--no-console")


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(2, disks=0) as running:
        yield running


def test_clients_elsewhere_are_told_the_address_and_no_more(hosts: Hosts) -> None:
    """A name is resolved by who is told it. What brokers say to each other, and what changes disks, is not to be
    reached from elsewhere."""
    host, other = hosts[1], hosts[2]
    for told in (host.address, host.name):
        data = str(host.root / "system" / "data")
        command = [*UP, "--brokers", "2", "--data-dir", data, "--host", told]
        up = host.run(command, output=subprocess.PIPE)
        try:
            assert up.stdout is not None
            lines = [up.stdout.readline().decode()]
            while not lines[-1].startswith("ready: "):
                assert lines[-1], "".join(lines)
                lines.append(up.stdout.readline().decode())
            assert lines[-1] == f"ready: bootstrap.servers={told}:9092,{told}:9093\n"
            assert "`holdfast log-dirs` on this machine: --bootstrap-server 127.0.0.1:9292,127.0.0.1:9293" in lines[-2]
            assert "".join(lines).count("as nobody logs in there") == 2  # each broker says so
            view = other.call(lambda: ask(host.address, 9092))
            assert view.brokers == {1: (told, 9092), 2: (told, 9093)}
            with pytest.raises(ConnectionRefusedError):
                other.call(lambda: ask(host.address, 9292))
            describe = (sys.executable, "-m", "holdfast.cli.main", "log-dirs", "describe", "--bootstrap-server")
            wide = {"COLUMNS": "300"}
            here = host.run([*describe, "127.0.0.1:9292"], output=subprocess.PIPE, environment=wide)
            assert here.communicate(timeout=60)[0].count(b"log-dir-1") == 2
            up.terminate()
            assert up.wait(30) == 0
        finally:
            up.kill()


def test_a_secured_cluster_is_known_by_its_address_and_shows_no_metrics_elsewhere(hosts: Hosts) -> None:
    host, other = hosts[1], hosts[2]
    data = host.root / "system" / "secured"
    command = [*UP, "--brokers", "1", "--data-dir", str(data), "--host", host.address, "--secure"]
    up = host.run(command, output=subprocess.PIPE)
    try:
        assert up.stdout is not None
        lines = [up.stdout.readline().decode()]
        while not lines[-1].startswith("ready: "):
            assert lines[-1], "".join(lines)
            lines.append(up.stdout.readline().decode())
        assert "nobody logs in" not in "".join(lines)
        context = ssl.create_default_context(cafile=str(data / "secure/ca.pem"))
        context.load_cert_chain(data / "secure/client.pem")
        view = other.call(lambda: ask(host.address, 9142, tls=context))
        assert view.brokers == {1: (host.address, 9142)}
        for port in (9192, 9292):  # metrics, and brokers among themselves
            with pytest.raises(ConnectionRefusedError):
                other.call(lambda port=port: ask(host.address, port))
        up.terminate()
        assert up.wait(30) == 0
    finally:
        up.kill()


def test_an_address_of_another_machine_is_refused(hosts: Hosts) -> None:
    data = str(hosts[1].root / "system" / "other")
    up = hosts[1].run([*UP, "--data-dir", data, "--host", hosts[2].address], output=subprocess.PIPE)
    said = up.communicate(timeout=60)[0].decode()
    assert up.returncode == 1
    assert f"--host {hosts[2].address}: Cannot assign requested address: expected an address of this machine" in said
