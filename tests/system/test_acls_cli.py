"""`holdfast acls` against brokers with an authorizer, held against what kafka-acls.sh of 4.3.0 said to the same."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.main import main as holdfast
from holdfast.testing import Cluster
from tests.unit.cli.test_acl_lines import in_order

pytestmark = [pytest.mark.system, pytest.mark.either_store]

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/cli/4.3.0/kafka-acls-authorizer.json"
RECORDED: list[dict[str, Any]] = json.loads(GOLDEN.read_text())
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def acls(cluster: Cluster, *arguments: str) -> Result:
    return CliRunner().invoke(holdfast, ["acls", *arguments, "--bootstrap-server", cluster.bootstrap])


@pytest.fixture(scope="module")
def guarded(store: str) -> Iterator[Cluster]:
    with Cluster(brokers=2, log_dirs=1, settings=AUTHORIZER, store=store) as cluster:
        yield cluster


def test_a_session_of_kafka_acls_says_the_same_line_for_line(guarded: Cluster) -> None:
    for each in RECORDED:
        arguments = each["command"][3:]
        actions = [a for a in arguments if a in ("--add", "--remove", "--list")]
        if len(actions) != 1:
            continue
        rest = [a for a in arguments if a not in actions]
        done = acls(guarded, actions[0].removeprefix("--"), *rest, "--kafka-errors")
        assert done.exit_code == each["exit"], (arguments, done.stderr)
        if not each["exit"]:
            assert in_order(done.stdout) == in_order(each["stdout"]), arguments


def test_what_is_listed_as_json_is_what_was_added(guarded: Cluster) -> None:
    for name in ("b", "a"):
        rule = ("--allow-principal", f"User:{name}", "--operation", "Describe-Configs", "--topic", "json")
        assert acls(guarded, "add", *rule).exit_code == 0
    done = acls(guarded, "list", "--topic", "json", "--principal", "User:a", "--json")
    (acl,) = json.loads(done.stdout)["acls"]
    assert (acl["principal"], acl["operation"], acl["host"]) == ("User:a", "DESCRIBE_CONFIGS", "*")


def test_nothing_is_removed_before_somebody_has_agreed(guarded: Cluster) -> None:
    rule = ("--allow-principal", "User:kept", "--operation", "Read", "--group", "kept")
    assert acls(guarded, "add", *rule).exit_code == 0
    done = acls(guarded, "remove", "--group", "kept")
    assert done.exit_code == 1
    assert "--force says so" in done.stderr
    assert "User:kept" in acls(guarded, "list", "--group", "kept").stdout
    assert acls(guarded, "remove", "--group", "kept", "--force").exit_code == 0
    assert acls(guarded, "list", "--group", "kept").stdout == ""


def test_brokers_without_an_authorizer_say_so() -> None:
    with Cluster(brokers=1, log_dirs=1) as cluster:
        done = acls(cluster, "list")
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr == "holdfast acls: No Authorizer is configured on the broker\n"
