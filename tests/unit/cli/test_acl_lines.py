"""Access control lists in the lines of kafka-acls.sh of Apache Kafka 4.3.0, as it was recorded."""

import json
import pathlib
from typing import Any

import pytest

from holdfast.cli.acl_lines import (
    OPERATIONS,
    PATTERNS,
    AclOptions,
    acls_document,
    added,
    adding_lines,
    already_there_line,
    current_lines,
    filters_listed,
    filters_of,
    principals_listed,
    question_lines,
    removed,
)
from holdfast.cli.kafka_errors import Declined
from holdfast.security.acls import AclBinding, AclEntry, AclFilter, ResourcePattern
from holdfast.security.resources import Operation, PatternKind, Permission, ResourceKind

GOLDEN = pathlib.Path(__file__).parents[2] / "golden/cli/4.3.0/kafka-acls-authorizer.json"
RECORDED: list[dict[str, Any]] = json.loads(GOLDEN.read_text())
MANY = {
    "--topic": "topics", "--group": "groups", "--transactional-id": "transactional_ids", "--allow-principal": "allow",
    "--deny-principal": "deny", "--allow-host": "allow_hosts", "--deny-host": "deny_hosts",
    "--operation": "operations",
}  # fmt: skip
FLAGS = {"--cluster": "cluster", "--producer": "producer", "--consumer": "consumer", "--idempotent": "idempotent"}


def options_of(arguments: list[str]) -> tuple[AclOptions, list[str]]:
    """What Kafka's command line says, and the principals of --principal."""
    given: dict[str, Any] = {}
    principals: list[str] = []
    rest = iter(arguments)
    for each in rest:
        if each in MANY:
            given[MANY[each]] = (*given.get(MANY[each], ()), next(rest))
        elif each in FLAGS:
            given[FLAGS[each]] = True
        elif each == "--resource-pattern-type":
            given["pattern"] = PATTERNS[next(rest)]
        elif each == "--principal":
            principals.append(next(rest))
        else:
            assert each in ("--add", "--remove", "--list", "--force"), each
    return AclOptions(**given), principals


def in_order(text: str) -> list[list[str]]:
    """Kafka's sets have the order of hashes: entries of a block in ours, and blocks."""
    blocks: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith(("Current", "Adding", "ACLs", "Acl")):
            blocks.append([line])
        elif line.strip():
            blocks[-1].append(line.strip())
    return sorted([block[0], *sorted(block[1:])] for block in blocks)


def bindings(found: Any) -> set[AclBinding]:
    return {AclBinding(resource, entry) for resource, entries in found.items() for entry in entries}


def test_a_session_of_kafka_acls_says_the_same_line_for_line() -> None:
    there: set[AclBinding] = set()
    told = 0
    for each in RECORDED:
        arguments = each["command"][3:]
        if each["exit"]:
            continue
        options, principals = options_of(arguments)
        lines: list[str] = []
        if "--add" in arguments:
            for resource, entries in added(options).items():
                new = [entry for entry in entries if AclBinding(resource, entry) not in there]
                known = [AclBinding(resource, entry) for entry in entries if entry not in new]
                lines += map(already_there_line, known)
                lines += adding_lines(resource, new) if new else ()
            there |= bindings(added(options))
        elif "--remove" in arguments:
            filters = [f for resource, entries in removed(options).items() for f in filters_of(resource, entries)]
            there = {b for b in there if not any(f.matches(b) for f in filters)}
        else:
            found = [b for b in there if any(f.matches(b) for f in filters_listed(options))]
            lines += current_lines(found, principals_listed(principals))
        assert in_order("\n".join(lines)) == in_order(each["stdout"]), arguments
        told += 1
    assert told == 23


@pytest.mark.parametrize("each", [r for r in RECORDED if r["exit"]], ids=lambda r: " ".join(r["command"][3:]))
def test_what_kafka_acls_refuses_is_refused_in_its_words(each: dict[str, Any]) -> None:
    arguments = each["command"][3:]
    if len([a for a in arguments if a in ("--add", "--remove", "--list")]) != 1:
        return  # here they are commands
    with pytest.raises(Declined) as refused:
        added(options_of(arguments)[0])
    said = (each["stderr"] or each["stdout"]).splitlines()[0]
    begin, bracket, names = said.partition("[")
    if bracket:  # a set, whose order is that of hashes
        assert refused.value.kafkas.partition("[")[0] == begin
        assert set(refused.value.kafkas.partition("[")[2].strip("]").split(", ")) == set(names.strip("]").split(", "))
    else:
        assert refused.value.kafkas == said
    assert "expected" in str(refused.value)


ENTRY = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)
TOPIC = ResourcePattern(ResourceKind.TOPIC, "orders")


def test_what_is_asked_before_entries_go() -> None:
    assert list(question_lines(TOPIC, [])) == [
        "Are you sure you want to delete all ACLs for resource filter "
        "`ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)`? (y/n)"
    ]
    assert list(question_lines(TOPIC, [ENTRY, ENTRY])) == [
        "Are you sure you want to remove ACLs: ",
        " \t(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)",
        "\t(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)",
        " from resource filter `ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)`? (y/n)",
    ]


def test_the_document_has_kafkas_words_and_an_order() -> None:
    other = AclBinding(ResourcePattern(ResourceKind.GROUP, "g", PatternKind.PREFIXED), ENTRY)
    document = json.loads(acls_document([other, AclBinding(TOPIC, ENTRY)], ()))
    assert [each["resource_name"] for each in document["acls"]] == ["orders", "g"]
    assert document["acls"][0] == {
        "resource_type": "TOPIC", "resource_name": "orders", "pattern_type": "LITERAL", "principal": "User:alice",
        "host": "*", "operation": "READ", "permission_type": "ALLOW",
    }  # fmt: skip
    assert json.loads(acls_document([other], ["User:bob"]))["acls"] == []


def test_an_operation_may_be_written_in_each_of_its_ways() -> None:
    for name in ("DescribeConfigs", "describe_configs", "DESCRIBE-CONFIGS"):
        (entries,) = added(AclOptions(topics=("t",), allow=("User:a",), operations=(name,))).values()
        assert [each.operation for each in entries] == [Operation.DESCRIBE_CONFIGS]
    assert OPERATIONS["all"] is Operation.ALL


@pytest.mark.parametrize(
    "options",
    [
        AclOptions(topics=("t",), allow=("User:a",), idempotent=True),
        AclOptions(topics=("t",), allow=("User:a",), producer=True, operations=("Read",)),
        AclOptions(topics=("t",), groups=("g",), cluster=True, allow=("User:a",), consumer=True),
    ],
)
def test_options_that_do_not_go_together(options: AclOptions) -> None:
    with pytest.raises(Declined, match="expected"):
        removed(options)


def test_nothing_named_lists_everything() -> None:
    assert filters_listed(AclOptions()) == [AclFilter()]
    with pytest.raises(Declined, match="Type:name"):
        principals_listed(["alice"])
