"""What a client says of an error code: what was asked, and why not."""

from __future__ import annotations

import asyncio
import pathlib
import pickle
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

import holdfast.client
from holdfast.broker.entity import build
from holdfast.client.acls import create_acls, delete_acls, describe_acls
from holdfast.client.admin import AdminClient, NewTopic
from holdfast.client.configs import AlterConfigOp, ConfigTarget, KeyChange, alter_config, describe_config
from holdfast.client.cordons import unregister_broker
from holdfast.client.disks import alter_replica_log_dirs
from holdfast.client.elections import elect_leaders
from holdfast.client.features import update_features
from holdfast.client.group_member import ConsumerGroupMember
from holdfast.client.group_offsets import delete_offsets
from holdfast.client.log_offsets import delete_records, list_offsets_each
from holdfast.client.quotas import alter_quotas, describe_quotas
from holdfast.client.reassignments import alter_reassignments, list_reassignments, set_configs
from holdfast.client.refused import raise_for, refusal
from holdfast.client.survey import members
from holdfast.client.transactions import abort_hanging, describe_producers, describe_transaction, list_transactions
from holdfast.client.users import delete_user, describe_users, set_password
from holdfast.client.views import CommittedOffset, OffsetSpec
from holdfast.model.errors import (
    ClusterAuthorizationFailedError,
    HoldfastError,
    TopicAuthorizationFailedError,
    UnknownServerError,
)
from holdfast.model.types import TopicPartition
from holdfast.protocol.error_codes import error_of
from holdfast.protocol.error_words import words_of
from holdfast.security.acls import AclBinding, AclEntry, AclFilter, ResourcePattern
from holdfast.security.resources import Operation, Permission, ResourceKind
from tests.unit.client.fakes import FakeBroker
from tests.unit.client.refusing import GROUP, TOPIC, handlers, refused

TP = TopicPartition(TOPIC, 0)
REFUSED = "Cluster authorization failed."


@pytest.mark.parametrize("code", [int(each) for each in ErrorCode if each])
def test_each_code_says_what_was_asked_and_what_kafka_says_of_it(code: int) -> None:
    known = error_of(code)
    error = refusal(code, None, "election")
    assert known is not None and error is not None
    assert (type(error), error.retriable) == (type(known), known.retriable)
    assert str(error) == f"election: {words_of(code)}"
    assert error.words == words_of(code)
    assert str(refusal(code, None)) == words_of(code)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_what_the_broker_says_is_said() -> None:
    error = refusal(29, "orders may not be read on Sundays", "topic 'orders'")
    assert isinstance(error, TopicAuthorizationFailedError)
    assert (str(error), error.words) == ("orders may not be read on Sundays",) * 2


def test_what_says_no_more_than_the_code_does_not_hide_what_was_asked() -> None:
    assert str(refusal(31, REFUSED, "quotas")) == f"quotas: {REFUSED}"
    assert str(refusal(31, "", "quotas")) == f"quotas: {REFUSED}"
    error = refusal(29, "Authorization failed.", "topic 'orders'")
    assert error is not None
    assert (str(error), error.words) == ("topic 'orders': Authorization failed.", "Authorization failed.")


def test_a_code_that_nobody_knows_is_named() -> None:
    error = refusal(9999, None, "election")
    assert isinstance(error, UnknownServerError)
    assert str(error) == "election: Kafka error 9999"


def test_no_error_is_none() -> None:
    assert refusal(0, "ignored", "election") is None
    raise_for(0, "ignored", "election")


def test_codes_become_errors_nowhere_else_in_the_client() -> None:
    package = pathlib.Path(holdfast.client.__file__).parent
    for folder in (package, package.parent / "cli", package.parent / "console", package.parent / "spark"):
        users = {path.name for path in folder.rglob("*.py") if "error_of" in path.read_text()}
        assert users <= {"refused.py"}, folder


# -- every place ------------------------------------------------------------------------------------------------

ACL = AclBinding(ResourcePattern(ResourceKind.TOPIC, TOPIC), AclEntry("User:a", "*", Operation.READ, Permission.ALLOW))
TO_SET = KeyChange(key="retention.ms", operation=AlterConfigOp.SET, value="1")


async def joined(client: AdminClient) -> Any:
    node = (await client.metadata(())).brokers[1]
    member = ConsumerGroupMember(f"{node.host}:{node.port}", GROUP, [TOPIC])
    try:
        return await member.join()
    finally:
        await member.leave()


Asked = Callable[[AdminClient], Awaitable[Any]]
PLACES: Mapping[str, tuple[int, str, Asked]] = {
    "produce": (0, "produce to orders-0: ", lambda c: c.produce(TOPIC, 0, bytearray(b"x"))),
    "fetch": (1, "fetch from broker 1: ", lambda c: c.fetch_raw(TP, 0)),
    "offsets": (2, "offsets of orders-0: ", lambda c: c.list_offsets({TP: OffsetSpec.LATEST})),
    "offsets, each": (2, "offsets of orders-0: ", lambda c: list_offsets_each(c, {TP: OffsetSpec.LATEST})),
    "a topic": (3, "topic 'orders': ", lambda c: c.topic(TOPIC)),
    "commit": (8, "commit of orders-0: ", lambda c: c.commit_offsets(GROUP, {TP: CommittedOffset(offset=1)})),
    "committed": (9, "offsets of group 'g1': ", lambda c: c.committed(GROUP)),
    "coordinator": (10, "coordinator of group 'g1': ", lambda c: c.find_coordinator(GROUP)),
    "join": (11, "joining group 'g1': ", joined),
    "a group": (15, "group 'g1': ", lambda c: c.describe_group(GROUP)),
    "groups": (16, "groups of broker 1: ", lambda c: c.list_groups()),
    "new topic": (19, "topic 'orders': ", lambda c: c.create_topic(NewTopic(name=TOPIC))),
    "delete topic": (20, "topic 'orders': ", lambda c: c.delete_topics([TOPIC])),
    "delete records": (21, "", lambda c: delete_records(c, {TP: 1})),
    "producer id": (22, "no producer id: ", lambda c: c.init_producer_id()),
    "marker": (27, "abort marker in orders-0: ", lambda c: abort_hanging(c, TP, (1, 0, 0))),
    "epochs": (23, "epochs of orders-0: ", lambda c: c.epoch_ends({TP: 0})),
    "acls": (29, "access control lists: ", describe_acls),
    "new acls": (30, "", lambda c: create_acls(c, [ACL])),
    "delete acls": (31, "", lambda c: delete_acls(c, [AclFilter()])),
    "topic configs": (32, "configs of ", lambda c: c.describe_topic_configs([TOPIC])),
    "a config": (32, "topic orders: ", lambda c: describe_config(c, ConfigTarget(topic=TOPIC))),
    "move": (34, "", lambda c: alter_replica_log_dirs(c, 1, {TP: "/d"})),
    "log dirs": (35, "log directories of broker 1: ", lambda c: c.describe_log_dirs()),
    "more partitions": (37, "topic 'orders': ", lambda c: c.create_partitions(TOPIC, 2)),
    "delete group": (42, "group 'g1': ", lambda c: c.delete_group(GROUP)),
    "set config": (44, "topic orders: ", lambda c: alter_config(c, ConfigTarget(topic=TOPIC), [TO_SET])),
    "set configs": (44, "configuration of ", lambda c: set_configs(c, 2, {TOPIC: {"retention.ms": "1"}})),
    "reassign": (45, "reassignment: ", lambda c: alter_reassignments(c, {TP: [1]})),
    "reassignments": (46, "reassignments: ", list_reassignments),
    "delete offsets": (47, "group 'g1': ", lambda c: delete_offsets(c, GROUP, [TP])),
    "quotas": (48, "quotas: ", describe_quotas),
    "set quotas": (49, "quotas: ", lambda c: alter_quotas(c, {"user": "a"}, {"producer_byte_rate": 1.0})),
    "users": (50, "users: ", describe_users),
    "password": (51, "user ", lambda c: set_password(c, "a", "SCRAM-SHA-256", "secret")),
    "delete user": (51, "user ", lambda c: delete_user(c, "a", ["SCRAM-SHA-256"])),
    "election": (43, "election: ", lambda c: elect_leaders(c, None, unclean=False)),
    "features": (57, "features: ", lambda c: update_features(c, {"f": 1}, 1)),
    "cluster": (60, "description of the cluster: ", members),
    "producers": (61, "producers of orders-0: ", lambda c: describe_producers(c, TP)),
    "unregister": (64, "broker 9: ", lambda c: unregister_broker(c, 9)),
    "a transaction": (65, "transaction 'tx': ", lambda c: describe_transaction(c, "tx")),
    "transactions": (66, "transactions of broker 1: ", list_transactions),
}


def found_in(outcome: Any) -> HoldfastError:
    """The error of an outcome for each thing that was asked for."""
    values = list(outcome.values()) if isinstance(outcome, Mapping) else outcome
    (first,) = values
    error = getattr(first, "error", first)
    assert isinstance(error, HoldfastError), outcome
    return error


def ask_refusing(key: int, code: int, asked: Asked) -> HoldfastError:
    async def main() -> HoldfastError:
        async with FakeBroker({}) as broker:
            broker.handlers |= handlers(key, code, lambda: broker.port)
            async with AdminClient(f"127.0.0.1:{broker.port}", timeout_s=10) as client:
                try:
                    return found_in(await asked(client))
                except HoldfastError as e:
                    return e

    return asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.parametrize("place", PLACES)
def test_every_place_says_what_was_asked_and_why_not(place: str) -> None:
    key, context, asked = PLACES[place]
    error = ask_refusing(key, 31, asked)
    assert type(error) is ClusterAuthorizationFailedError
    assert str(error).startswith(context)
    assert REFUSED in str(error)


def test_who_gets_no_producer_id_is_told_which_right_is_missing() -> None:
    error = ask_refusing(22, 31, PLACES["producer id"][2])
    assert str(error) == f"no producer id: {REFUSED} Expected IdempotentWrite on the cluster, or Write on any topic."


def test_a_partition_that_is_not_to_be_read_says_why_not() -> None:
    def answer(version: int, request: Any) -> Any:
        kind = load_response_schema(1, version)
        return build(kind, refused(kind, 29) | {"error_code": ErrorCode.none})

    async def main() -> None:
        async with FakeBroker({}) as broker:
            broker.handlers |= handlers(1, 29, lambda: broker.port) | {1: answer}
            async with AdminClient(f"127.0.0.1:{broker.port}", timeout_s=10) as client:
                with pytest.raises(TopicAuthorizationFailedError) as raised:
                    await client.fetch_raw(TP, 0)
        assert str(raised.value) == "partition orders-0 at broker 1: Topic authorization failed."

    asyncio.run(asyncio.wait_for(main(), 20))
