"""`holdfast users` and `holdfast quotas` against brokers, in the lines of kafka-configs.sh."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.main import main as holdfast
from holdfast.testing import Cluster, wait_for

pytestmark = [pytest.mark.system, pytest.mark.either_store]

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
PASSWORD = "of more than one word"


@pytest.fixture(scope="module")
def guarded(store: str) -> Iterator[Cluster]:
    with Cluster(brokers=2, log_dirs=1, settings=AUTHORIZER, store=store) as cluster:
        yield cluster


def run(cluster: Cluster, *arguments: str, text: str = "") -> Result:
    return CliRunner().invoke(holdfast, [*arguments, "--bootstrap-server", cluster.bootstrap], input=text)


def credentials(cluster: Cluster, user: str) -> dict[str, int]:
    """Of a user, as any broker tells of it: it hears of a change in a moment."""
    found = json.loads(run(cluster, "users", "list", user, "--json").stdout)["users"]
    return {each["mechanism"]: each["iterations"] for each in found[0]["credentials"]} if found else {}


def test_users_are_set_listed_and_removed(guarded: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\nnothing of this\n")
    done = run(guarded, "users", "set", "bob", "--password-file", str(file))
    assert (done.exit_code, done.stdout) == (0, "Completed updating config for user bob.\n"), done.stderr
    more = ("--mechanism", "scram-sha-256", "--iterations", "8192", "--password-file", "-")
    assert run(guarded, "users", "set", "bob", *more, text=f"{PASSWORD}\n").exit_code == 0
    both = {"SCRAM-SHA-512": 4096, "SCRAM-SHA-256": 8192}
    wait_for(lambda: credentials(guarded, "bob") == both, "brokers to know of bob")
    listed = run(guarded, "users", "list").stdout
    kafkas = "SCRAM credential configs for user-principal 'bob' are "
    assert listed == f"{kafkas}SCRAM-SHA-512=iterations=4096, SCRAM-SHA-256=iterations=8192\n"
    assert run(guarded, "users", "remove", "bob", "--mechanism", "SCRAM-SHA-256", "--yes").exit_code == 0
    wait_for(lambda: credentials(guarded, "bob") == {"SCRAM-SHA-512": 4096}, "brokers to hear of it")
    assert run(guarded, "users", "remove", "bob", "--yes").exit_code == 0
    wait_for(lambda: credentials(guarded, "bob") == {}, "brokers to hear of it")
    again = run(guarded, "users", "remove", "bob", "--yes")
    assert (again.exit_code, again.stderr) == (1, "holdfast users: user bob: there is none with a password\n")


def test_a_password_comes_from_a_person_or_a_file(guarded: Cluster, tmp_path: Path) -> None:
    done = run(guarded, "users", "set", "eve")
    assert (done.exit_code, "--password-file" in done.stderr) == (2, True)
    empty = tmp_path / "empty"
    empty.write_text("\n")
    for file in (empty, tmp_path / "none"):
        done = run(guarded, "users", "set", "eve", "--password-file", str(file))
        assert (done.exit_code, str(file) in done.stderr) == (1, True), done.stderr
    done = run(guarded, "users", "set", "eve", "--password-file", str(empty), "--iterations", "100")
    assert done.exit_code == 2
    assert credentials(guarded, "eve") == {}


def test_quotas_are_set_listed_and_unset(guarded: Cluster) -> None:
    both = ("--user", "carol", "--client", "c1")
    done = run(guarded, "quotas", "set", *both, "producer_byte_rate=1000000", "request_percentage=12.5")
    assert (done.exit_code, done.stdout) == (0, "Completed updating config for user carol.\n"), done.stderr
    line = "Quota configs for user-principal 'carol', client-id 'c1' are "
    rates = "producer_byte_rate=1000000.0, request_percentage=12.5\n"
    wait_for(lambda: run(guarded, "quotas", "list", *both).stdout == line + rates, "brokers to know of it")
    assert run(guarded, "quotas", "set", "--ip-default", "connection_creation_rate=70").exit_code == 0
    ip = "Quota configs for the default ip are connection_creation_rate=70.0\n"
    wait_for(lambda: run(guarded, "quotas", "list").stdout == line + rates + ip, "brokers to know of it")
    assert run(guarded, "quotas", "unset", *both, "request_percentage").exit_code == 0
    wait_for(
        lambda: run(guarded, "quotas", "list", *both).stdout == f"{line}producer_byte_rate=1000000.0\n", "one less"
    )
    again = run(guarded, "quotas", "unset", *both, "request_percentage")
    assert (again.exit_code, again.stderr) == (1, "holdfast quotas: request_percentage is not set there\n")
    found = json.loads(run(guarded, "quotas", "list", "--json").stdout)["quotas"]
    assert found[0] == {"entity": {"user": "carol", "client-id": "c1"}, "quotas": {"producer_byte_rate": 1000000.0}}
    for wrong in (("set", "producer_byte_rate=1"), ("set", "--ip", "here", "connection_creation_rate=1"),
                  ("set", "--user", "a", "connection_creation_rate=1"), ("unset", "--user", "a", "x")):  # fmt: skip
        assert run(guarded, "quotas", *wrong).exit_code == 2
